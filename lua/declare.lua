-- declare: store the limits of a scope, so that whoever releases its tasks knows them.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), mode ('replace' by a worker that starts | 'missing' by everybody else),
--        window (most tasks in flight), channel, scope, then for each limit: interval (us; 0 = closed), burst,
--        fresh (us), keep (us), wide (1 = one bucket for all lanes | 0 = keyed), name (and what it counts, if in
--        windows)
-- REPLY  1 if that changed anything, else 0
--
-- @include lib/clock
-- @include lib/bucket
-- @include lib/scope
-- @include lib/entry
-- @include lib/rescale
-- @include lib/lane
local now = clock(ARGV[1])
local before = limits_read(now)
if ARGV[2] == 'missing' and before then return 0 end
for _, field in ipairs(redis.call('HKEYS', LIMITS)) do
  if tonumber(field) then redis.call('HDEL', LIMITS, field) end
end
redis.call('HSET', LIMITS, 'window', ARGV[3])
for a = 6, #ARGV, 6 do
  local spec = table.concat({ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]}, ' ')
  redis.call('HSET', LIMITS, whole((a - 6) / 6 + 1), spec)
end
redis.call('PEXPIRE', LIMITS, MONTH_MS)
if before and pace_opened(before, limits_read(now)) then
  lane_reconsider(now, ARGV[4], ARGV[5])
end
if before and not pace_rescale(before, limits_read(), now) then return 0 end
lane_reconsider(now, ARGV[4], ARGV[5])
return 1
