-- A bucket is one string key: '<tat> <seen> <interval>'. `seen` is the clock when it was written: should the
-- clock stand before that, time has stepped back, and the bucket goes on as if time had stood still meanwhile.
-- `interval` is the emission interval of then: should the rate have changed, the units it lacks stay the
-- same, and take the new rate's time to come back (never more than the burst: it is empty at worst).

-- bucket_rescale: the TAT under a new interval. Closed (0) tells nothing of the units it lacks.
local function bucket_rescale(tat, now, before, interval, burst)
  if tat <= now or interval == 0 then return tat end
  local lacks = tat - now
  if before > 0 then lacks = math.ceil(lacks * interval / before) end
  return now + math.min(lacks, burst * interval)
end

-- bucket_load: its TAT (`fresh` from now where there is none), and whether the bucket must be stored even if
-- the answer is no: when clock or rate changed, else the wait would be figured anew from then at each
-- question; and at the first use of one that does not start full, else it would never begin to fill.
local function bucket_load(key, now, limit, fresh)
  local value = redis.call('GET', key)
  if not value then return now + fresh, fresh > 0 end
  local tat, seen, before = string.match(value, '^(%d+) (%d+) (%d+)$')
  tat, seen, before = tonumber(tat), tonumber(seen), tonumber(before)
  local stepped, changed = now < seen, before ~= limit.interval and limit.interval > 0
  if stepped then tat = tat - (seen - now) end
  if changed then tat = bucket_rescale(tat, now, before, limit.interval, limit.burst) end
  return tat, stepped or changed
end

-- bucket_store: it expires `keep` after it is full, when nothing is lost by forgetting it.
local function bucket_store(key, tat, now, limit)
  local until_ms = math.ceil((math.max(tat, now) + limit.keep) / 1000) + 1
  redis.call('SET', key, whole(tat) .. ' ' .. whole(now) .. ' ' .. whole(limit.interval), 'PXAT', whole(until_ms))
end
