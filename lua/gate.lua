-- gate: a worker has a task's message in hand, before its pool: let it pass, park it, or drop the copy.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), id, lane, rank (one digit; 0 goes first), expires (us; 0 = never),
--        eta (us; 0 = none), keys (comma-separated, one per limit), costs (the same), message,
--        ahead (us before its slot that a task may leave), lease (us), channel, scope,
--        ticket ('' = the message carries none), redelivered (1|0)
-- REPLY  {'go', ticket, slot (us), now (us), id} | {'parked', slot, now, id}
--        | {'stale'}   a later copy of this message is or was under way: acknowledge and forget this one
--        | error UNDECLARED
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/scope
-- @include lib/entry
-- @include lib/pace
-- @include lib/lane
-- @include lib/flight
-- @include lib/enter
local now, id, lease = clock(ARGV[1]), ARGV[2], tonumber(ARGV[11])
local ticket, redelivered = ARGV[14], ARGV[15] == '1'

if ticket ~= '' then
  local current = flight_ticket(id)
  if current == ticket then
    local value = redelivered and redis.call('HGET', MESSAGES, id)
    if not value then
      redis.call('ZADD', FLIGHT, whole(now + lease), id)
      return {'go', ticket, whole(now), whole(now), id}
    end
    -- The worker that had this copy may live and start it: both are stale, and a new one goes out at once.
    local entry = entry_read(id, value)
    flight_recall(id, now)
    lane_return(entry)
    pace_return(limits_read() or {}, entry, now)
    wake(now, ARGV[12], ARGV[13])
    return {'stale'}
  end
  -- the last: it had started, its worker died, and another copy of it has been here already
  if current or flight_stale(id, ticket) or redis.call('HEXISTS', MESSAGES, id) == 1 then return {'stale'} end
elseif redelivered and redis.call('HEXISTS', MESSAGES, id) == 1 then
  return {'stale'} -- parked or let through by a worker that died before it could acknowledge
end

local entry = entry_given()
return enter(now, entry, tonumber(ARGV[10]), lease, ARGV[12], ARGV[13])
