-- A bucket is one string key: '<tat> <seen> <interval> <burst>[ <begun>]'. `seen` is the clock when it was
-- written: should the clock stand before that, time has stepped back, and the bucket goes on as if time had
-- stood still meanwhile. Interval and burst are those of then: should the limit have changed, the units in it
-- stay, as far as it still holds them, and those it lacks come back at the new rate. `begun`: lib/turn.

-- bucket_rescale: the TAT under a changed limit. Closed (interval 0) tells nothing of the units it lacks.
local function bucket_rescale(tat, now, before, after)
  if tat <= now or after.interval == 0 then return tat end
  local lacks = tat - now
  if before.interval > 0 then
    lacks = math.ceil(lacks * after.interval / before.interval) + (after.burst - before.burst) * after.interval
  end
  return now + math.max(0, math.min(lacks, after.burst * after.interval))
end

-- bucket_load: its TAT (`fresh` from now where there is none); whether the bucket must be stored even if
-- the answer is no: when clock or rate changed, else the wait would be figured anew from then at each
-- question; and at the first use of one that does not start full, else it would never begin to fill; and the
-- TAT by what has begun (start.lua; nil: not told apart).
local function bucket_load(key, now, limit, fresh)
  local value = redis.call('GET', key)
  if not value then return now + fresh, fresh > 0 end
  local tat, seen, interval, burst, begun = string.match(value, '^(%d+) (%d+) (%d+) (%d+) ?(%d*)$')
  tat, seen, begun = tonumber(tat), tonumber(seen), tonumber(begun)
  local before = {interval = tonumber(interval), burst = tonumber(burst)}
  local stepped = now < seen
  local changed = limit.interval > 0 and (before.interval ~= limit.interval or before.burst ~= limit.burst)
  if stepped then tat, begun = tat - (seen - now), begun and begun - (seen - now) end
  if changed then
    tat = bucket_rescale(tat, now, before, limit)
    begun = begun and bucket_rescale(begun, now, before, limit)
  end
  return tat, stepped or changed, begun
end

-- bucket_store: it expires `keep` after it is full, when nothing is lost by forgetting it.
local function bucket_store(key, tat, now, limit, begun)
  local until_ms = math.ceil((math.max(tat, now) + limit.keep) / 1000) + 1
  local value = string.format('%.0f %.0f %.0f %.0f', tat, now, limit.interval, limit.burst)
  if begun then value = value .. string.format(' %.0f', math.max(0, begun)) end
  redis.call('SET', key, value, 'PXAT', whole(until_ms))
end
