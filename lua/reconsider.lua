-- reconsider: the limits have changed: every waiting lane is looked at again, now.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), channel, scope
-- REPLY  number of lanes
--
-- @include lib/clock
-- @include lib/scope
-- @include lib/entry
-- @include lib/lane
local lanes = redis.call('ZRANGE', WAITING, 0, -1)
for _, lane in ipairs(lanes) do lane_join(lane) end
redis.call('DEL', WAITING)
redis.call('PEXPIRE', LIMITS, MONTH_MS)
wake(clock(ARGV[1]), ARGV[2], ARGV[3])
return #lanes
