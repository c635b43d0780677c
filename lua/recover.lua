-- recover: put tasks in flight back at the head of their lanes: those whose lease has run out (their
-- scheduler or worker died, or the broker lost them), or those named (their publish failed). The copy
-- that may still be under way becomes stale, so the task starts once.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), batch (most tasks to put back), then the ids named, if any
-- REPLY  number of tasks put back
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/scope
-- @include lib/entry
-- @include lib/pace
-- @include lib/lane
-- @include lib/flight
local now = clock(ARGV[1])
local ids = {}
for i = 3, #ARGV do ids[#ids + 1] = ARGV[i] end
if #ids == 0 then ids = redis.call('ZRANGEBYSCORE', FLIGHT, '-inf', whole(now), 'LIMIT', 0, ARGV[2]) end

local limits = limits_read() or {}
local recovered = 0
for _, id in ipairs(ids) do
  local value = redis.call('HGET', MESSAGES, id)
  local entry = value and entry_read(id, value)
  if entry and redis.call('ZSCORE', FLIGHT, id) then
    flight_recall(id, now)
    flight_orphan(entry, now)
    lane_return(entry)
    pace_return(limits, entry, now)
    recovered = recovered + 1
  elseif not entry then
    flight_end(id)
  end
end
if recovered > 0 then redis.call('HINCRBY', META, 'recovered', recovered) end
return recovered
