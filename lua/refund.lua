-- refund: give `cost` units back to every bucket; never beyond full.
--
-- KEYS   one bucket per limit
-- ARGV   now ('' = ask Redis), then for each limit: interval (us), keep (us), cost
-- REPLY  number of buckets changed
--
-- @include lib/clock
-- @include lib/bucket
local now = clock(ARGV[1])
local changed = 0
for i, key in ipairs(KEYS) do
  local a = (i - 1) * 3 + 1
  local interval, keep, cost = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local tat = bucket_load(key, now, 0)
  if tat > now and cost > 0 then
    bucket_store(key, math.max(now, tat - cost * interval), now, keep)
    changed = changed + 1
  end
end
return changed
