-- gate: a worker has a task's message in hand, before its pool: let it pass, park it, or drop the copy.
--
-- KEYS   the eleven keys of the scope (README), then the start bucket of each limit
-- ARGV   now ('' = ask Redis), id, lane, rank (one digit; 0 goes first), expires (us; 0 = never),
--        eta (us; 0 = none), keys (comma-separated, one per limit), costs (the same), message,
--        ahead (us before its slot that a task may leave), lease (us), channel, scope,
--        ticket ('' = the message carries none), again (1|0: it may have been delivered before), far (us: a
--        task whose start is so far away is parked again), copy ('#<which try of the task>@<which delivery>'),
--        longest (us it may wait; 0 = any), most (tasks it may wait among; 0 = any)
-- REPLY  {'go', ticket, slot (us), now (us), id, calm (1|0)} | {'parked', slot, now, id}
--        | {'full', wait (us), over (us until it would not be)}
--        | {'stale'}   a later copy of this message is or was under way: acknowledge and forget this one
--        | error UNDECLARED
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/bucket
-- @include lib/scope
-- @include lib/entry
-- @include lib/pace
-- @include lib/lane
-- @include lib/flight
-- @include lib/turn
-- @include lib/ahead
-- @include lib/enter
local now, id, lease = clock(ARGV[1]), ARGV[2], tonumber(ARGV[11])
local channel, scope, ticket, again, far = ARGV[12], ARGV[13], ARGV[14], ARGV[15] == '1', tonumber(ARGV[16])
local given = entry_given(ticket == '' and ARGV[17] or '', ARGV[18], ARGV[19])
local limits = limits_read(now)
if not limits then return UNDECLARED end
if limits.counted then
-- @include lib/log
-- @include lib/quota
  counted.log, counted.quota = log, quota
end

local current = ticket ~= '' and flight_ticket(id)
if current == ticket then
  local value = redis.call('HGET', MESSAGES, id)
  local at, tats = turn_at(limits, given.keys, given.costs, now)
  if value and (again or at - now > far) then
    -- Its turn is not now; or the worker that had this copy may live and start it: then both are stale, and
    -- a new one goes out at once.
    turn_later(entry_read(id, value), limits, tats, now)
    wake(now, channel, scope)
    return {again and 'stale' or 'parked', whole(math.min(at, NEVER)), whole(now), id}
  end
  redis.call('ZADD', FLIGHT, whole(now + lease), id)
  return {'go', ticket, whole(now), whole(now), id, 0}
end
if ticket ~= '' and (current or flight_stale(id, ticket)) then return {'stale'} end
if (ticket ~= '' or again) and redis.call('HEXISTS', MESSAGES, id) == 1 then
  return {'stale'} -- parked or let through by a worker that died before it could acknowledge
end
-- And the other has started since:
if again and flight_stale(id, string.match(given.copy, '^#%d+') or '') then return {'stale'} end
return enter(now, given, tonumber(ARGV[10]), lease, channel, scope)
