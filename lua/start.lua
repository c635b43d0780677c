-- start: a body is about to run. Counts the start, or parks the task again. Here the bound is kept: for
-- every interval of length t, starts <= burst + rate * t. The first to ask has the first slot, so order is
-- kept although each pool process waits out its own.
--
-- KEYS   the eleven keys of the scope (README), then the start bucket of each limit
-- ARGV   now ('' = ask Redis), mode ('take' a slot | 'begin' the body after a hold | 'late': as begin, but
--        later than it was counted), id, ticket, slot (us; 0 = none; with 'late': by how much),
--        near (us: so close, begin needs no asking), far (us: so far, the task is parked again),
--        ahead (us), channel, scope, keys, costs (comma-separated)
-- REPLY  {'go', wait (us)}    counted; run the body in so long
--        {'hold', wait (us)}  counted; ask 'begin' in so long. Until then a crash loses nothing
--        {'wait', wait (us)}  not counted; ask again in so long
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

local limits, window = limits_read()
if not limits then return UNDECLARED end
local current = flight_ticket(id)
local taking = mode == 'take'
if current ~= ticket then
  -- Another copy was let out since; or this one has started before, and waits again in another copy.
  if taking and (current or redis.call('HEXISTS', MESSAGES, id) == 1) then return {'stale'} end
  if flight_stale(id, ticket) then return {'stale'} end
end

local at, tats = turn_at(limits, keys, costs, now)
if not taking then at = now elseif slot - now <= far then at = math.max(at, slot) end
local wait = at - now
if wait > far then
  local value = current and redis.call('HGET', MESSAGES, id)
  if not value then return {'wait', far} end
  turn_later(entry_read(id, value), limits, tats, now)
  wake(now, channel, scope)
  return {'parked'}
end

local flying = redis.call('ZCARD', FLIGHT)
if mode ~= 'begin' then
  for i, tat in ipairs(tats) do
    local limit, cost = limits[i], tonumber(costs[i])
    if cost > 0 and limit.interval > 0 then
      local shift = math.min(cost * limit.interval, slot) -- moved by so much, it adds at most that much work
      tat = taking and gcra_take(tat, at, limit.interval, cost) or math.max(tat, now) + shift
      bucket_store(KEYS[11 + i], tat, now, limit)
      -- Behind what those under way will take, too.
      local others = limit.wide and math.min((flying - 1) * cost * limit.interval, ahead) or 0
      local early = taking and slot > 0 and now <= slot and slot < at
      local pull = early and cost * limit.interval / 100 or 0
      pace_follow(limit.name .. '|' .. keys[i], tat + math.max(0, others), ahead, pull)
    end
  end
end
if taking and wait > near then return {'hold', math.ceil(wait)} end
if flight_end(id) == 1 then redis.call('HINCRBY', META, 'started', 1) end
if flying >= window then wake(now, channel, scope) end
return {'go', math.ceil(wait)}
