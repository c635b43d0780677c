-- A bucket is one string key: '<tat> <seen>'. `seen` is the clock when it was written: should the clock
-- stand before that, time has stepped back, and the bucket goes on as if time had stood still meanwhile.

-- bucket_load: its TAT (`fresh` where there is none), and whether the bucket must be stored even if the
-- answer is no: when the clock stepped back, else it would wait for the old time to come again; and at the
-- first use of one that does not start full, else it would never begin to fill.
local function bucket_load(key, now, fresh)
  local value = redis.call('GET', key)
  if not value then return fresh, fresh > now end
  local cut = string.find(value, ' ', 1, true)
  local tat, seen = tonumber(string.sub(value, 1, cut - 1)), tonumber(string.sub(value, cut + 1))
  if now < seen then return tat - (seen - now), true end
  return tat, false
end

-- bucket_store: it expires `keep` microseconds after it is full, when nothing is lost by forgetting it.
local function bucket_store(key, tat, now, keep)
  local until_ms = math.ceil((math.max(tat, now) + keep) / 1000) + 1
  redis.call('SET', key, whole(tat) .. ' ' .. whole(now), 'PXAT', whole(until_ms))
end
