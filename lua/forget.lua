-- forget: these tasks are over: remove every trace.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), mode ('never' = it will not run (revoked, expired, cancelled, publish refused):
--        its release is not charged, and a copy that is under way all the same may not start | 'done' = it has
--        left for good (smoother)), channel, scope, then for each task: id, ticket ('' = whichever; else only
--        if that is the current one)
-- REPLY  number of tasks that were there
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/scope
-- @include lib/entry
-- @include lib/pace
-- @include lib/lane
-- @include lib/flight
local now, never = clock(ARGV[1]), ARGV[2] == 'never'
local limits, window = limits_read()
local full = limits and redis.call('ZCARD', FLIGHT) >= window
local forgotten = 0
for i = 5, #ARGV, 2 do
  local id, ticket = ARGV[i], ARGV[i + 1]
  local meant = ticket == '' or flight_ticket(id) == ticket
  local value = meant and redis.call('HGET', MESSAGES, id)
  local entry = value and entry_read(id, value)
  local flew = entry and never and redis.call('ZSCORE', FLIGHT, id)
  if flew then pace_return(limits or {}, entry, now) end
  if flew or entry and redis.call('ZREM', LINE, entry_place(entry)) == 1 then
    lane_left(entry.lane)
    wake(now, ARGV[3], ARGV[4])
  end
  if meant then
    if never then flight_recall(id, now) end
    redis.call('ZREM', DELAYED, id)
    forgotten = forgotten + flight_end(id)
  end
end
if full and forgotten > 0 then wake(now, ARGV[3], ARGV[4]) end -- as a start does: there is room again
return forgotten
