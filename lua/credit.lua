-- credit: take several starts at once, to be used within `span`, if the lane is calm: nothing waits, and each
-- of its buckets stays at least nine tenths full.
--
-- The bound stays exact. Charged at u, used by u + span: starts in an interval of length t may have been
-- charged up to span before it, so up to burst + rate * (t + span) could start in it. So the bucket gives up
-- what comes in within span: it holds burst - rate * span at most when it is charged.
--
-- KEYS   the eleven keys of the scope (README), then the start bucket of each limit
-- ARGV   now ('' = ask Redis), span (us), keys, units to take (comma-separated, one per limit)
-- REPLY  1 if taken, else 0 | error UNDECLARED
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
local now, span, keys, costs = clock(ARGV[1]), tonumber(ARGV[2]), split(ARGV[3]), split(ARGV[4])
local limits = limits_read(now)
if not limits then return UNDECLARED end
if limits.counted or redis.call('EXISTS', LINE) == 1 then return 0 end

local _, tats = turn_at(limits, keys, costs, now)
for i, limit in ipairs(limits) do
  if not tats[i] then return 0 end
  tats[i] = gcra_take(math.max(tats[i], now + span), now, limit.interval, tonumber(costs[i]))
  if not gcra_calm(tats[i], now, limit.interval, limit.burst) then return 0 end
end
for i, limit in ipairs(limits) do bucket_store(KEYS[11 + i], tats[i], now, limit) end
return 1
