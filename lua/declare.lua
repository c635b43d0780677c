-- declare: store the limits of a scope, so that whoever releases its tasks knows them.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   mode ('replace' by a worker that starts | 'missing' by everybody else), window (most tasks in
--        flight), then for each limit: interval (us; 0 = closed), burst, fresh (us), keep (us),
--        wide (1 = one bucket for all lanes | 0 = keyed), name
-- REPLY  1 if stored, 0 if there were limits already
--
-- @include lib/clock
-- @include lib/scope
if ARGV[1] == 'missing' and redis.call('HEXISTS', LIMITS, '1') == 1 then return 0 end
for _, field in ipairs(redis.call('HKEYS', LIMITS)) do
  if tonumber(field) then redis.call('HDEL', LIMITS, field) end
end
redis.call('HSET', LIMITS, 'window', ARGV[2])
for a = 3, #ARGV, 6 do
  local spec = table.concat({ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]}, ' ')
  redis.call('HSET', LIMITS, whole((a - 3) / 6 + 1), spec)
end
redis.call('PEXPIRE', LIMITS, MONTH_MS)
return 1
