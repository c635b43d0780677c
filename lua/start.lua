-- start: a body is about to run. Counts the start, or parks the task again. Here the bound is kept: for
-- every interval of length t, starts <= burst + rate * t.
--
-- KEYS   the eleven keys of the scope (README), then the start bucket of each limit
-- ARGV   now ('' = ask Redis), mode ('take' a slot; 'begin' in it after a hold; 'late': to begin in it had
--        been allowed, and it is past; 'done': about to begin as allowed, after a second hold), id, ticket,
--        slot (us; 0 = none), near (us: so close, no hold), far (us: so far, the task is parked again),
--        ahead (us), channel, scope, keys, costs (comma-separated), longest (us that it may wait when a limit that
--        counts in windows turns out to be used up; 0 = any)
-- REPLY  {'go', wait (us), slot (us), slack (us)}  run the body in so long, up to slack later (else: 'late')
--        {'hold', wait (us), slot (us)}  ask in so long: 'begin' after 'take', else 'done'. A crash meanwhile
--                                        loses nothing
--        {'wait', wait (us)}             not counted; ask the same again in so long
--        {'full', wait (us)}             it would wait longer than it may
--        {'parked'} | {'stale'} | error UNDECLARED
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
local now, mode, id, ticket, slot = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local near, far, ahead, channel, scope = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], ARGV[10]
local keys, costs = split(ARGV[11]), split(ARGV[12])

local limits, window = limits_read(now)
if not limits then return UNDECLARED end
if limits.counted then
-- @include lib/log
-- @include lib/quota
  counted.log, counted.quota = log, quota
end
local current = flight_ticket(id)
local taking = mode == 'take'
if current ~= ticket then
  -- Another copy was let out since; or this one has started before, and waits again in another copy.
  if taking and (current or redis.call('HEXISTS', MESSAGES, id) == 1) then return {'stale'} end
  if flight_stale(id, ticket) then return {'stale'} end
end

local at, tats, begun = turn_at(limits, keys, costs, now)
local planned = begun
if slot - now > far then slot = 0 end -- the clock has stepped back since it was granted
if taking then
  at = math.max(at, slot)
elseif mode == 'done' then
  at = math.max(now, slot)
else
  at, planned = turn_moment(limits, costs, slot, now, tats, begun, mode == 'late')
end
if at - now > far then
  local longest, used_up = tonumber(ARGV[13]), turn_used_up(limits, tats, now)
  if taking and longest > 0 and used_up > math.max(far, longest) then
    flight_end(id)
    return {'full', math.ceil(used_up)}
  end
  local value = current and mode ~= 'late' and redis.call('HGET', MESSAGES, id)
  if value then
    turn_later(entry_read(id, value), limits, tats, now)
    wake(now, channel, scope)
    return {'parked'}
  end
  return {'wait', taking and far or math.ceil(math.min(at - now - near, 1000000))} -- nothing counted: ask again
end

local flying, slack = redis.call('ZCARD', FLIGHT), mode == 'done' and 0 or far
if taking then
  turn_take(limits, costs, at, now, tats, begun)
  turn_pace(limits, keys, costs, at, now, slot, tats, flying - 1, ahead)
  slot = at
end
local wait = math.ceil(at - now)
local first = taking and wait > near -- it will ask 'begin', and begins then
if mode ~= 'done' and not first then slack = turn_begin(limits, costs, slot, at, now, tats, begun, planned) end
if wait > near then return {'hold', wait, at} end
-- What was let go before has ended its flight; and the task may have been given another life since.
local ends = taking or current == ticket
if ends and flight_end(id) == 1 then redis.call('HINCRBY', META, 'started', 1) end
if flying >= window then wake(now, channel, scope) end
return {'go', wait, at, mode == 'late' and 0 or math.min(slack, far)}
