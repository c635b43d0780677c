-- refund: give `cost` units back to every bucket; never beyond full.
--
-- KEYS   one bucket per limit
-- ARGV   now ('' = ask Redis), then for each limit: interval (us), burst, keep (us), cost
-- REPLY  number of buckets changed
--
-- @include lib/clock
-- @include lib/bucket
local now = clock(ARGV[1])
local changed = 0
for i, key in ipairs(KEYS) do
  local a = (i - 1) * 4 + 1
  local limit = {interval = tonumber(ARGV[a + 1]), burst = tonumber(ARGV[a + 2]), keep = tonumber(ARGV[a + 3])}
  local cost = tonumber(ARGV[a + 4])
  local tat = bucket_load(key, now, limit, 0)
  if tat > now and cost > 0 then
    bucket_store(key, math.max(now, tat - cost * limit.interval), now, limit)
    changed = changed + 1
  end
end
return changed
