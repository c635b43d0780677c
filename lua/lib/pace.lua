-- Release times: RELEASES holds a TAT per bucket, which paces what is let out to the broker. Starts have
-- their own (the truth); start.lua keeps the release time from falling behind it.

-- pace_expire: all of them are forgotten a day after the last is full.
local function pace_expire()
  local last = redis.call('ZRANGE', RELEASES, -1, -1, 'WITHSCORES')
  if last[2] then redis.call('PEXPIREAT', RELEASES, whole((tonumber(last[2]) + DAY) / 1000)) end
end

-- pace_of: the name, cost and TAT of the entry's bucket under limit `i`. The first use of a bucket that
-- does not start full is remembered, else it would never begin to fill.
local function pace_of(limit, entry, i, now)
  local bucket = limit.name .. '|' .. (entry.keys[i] or '-')
  local tat = tonumber(redis.call('ZSCORE', RELEASES, bucket))
  if not tat and limit.fresh > 0 then
    redis.call('ZADD', RELEASES, whole(now + limit.fresh), bucket)
    pace_expire()
  end
  return bucket, tonumber(entry.costs[i] or '1'), tat or now + limit.fresh
end

-- pace: when the entry may be released, and whether what holds it then is common to all lanes.
local function pace(limits, entry, now)
  local slot, wide = now, false
  for i, limit in ipairs(limits) do
    local held = math.huge
    if limit.interval > 0 then
      local _, cost, tat = pace_of(limit, entry, i, now)
      held = gcra_slot(tat, now, limit.interval, limit.burst, cost)
    end
    if held > slot then slot, wide = held, limit.wide end
  end
  return slot, wide
end

-- pace_take: charge the release at `slot`.
local function pace_take(limits, entry, slot, now)
  for i, limit in ipairs(limits) do
    local bucket, cost, tat = pace_of(limit, entry, i, now)
    if cost > 0 then redis.call('ZADD', RELEASES, whole(gcra_take(tat, slot, limit.interval, cost)), bucket) end
  end
end

-- pace_return: the release has led to no start, and none is charged for it: at one per hour, a scheduler
-- that died would else cost an hour.
local function pace_return(limits, entry, now)
  for i, limit in ipairs(limits) do
    local bucket, cost, tat = pace_of(limit, entry, i, now)
    if tat > now then redis.call('ZADD', RELEASES, whole(tat - cost * limit.interval), bucket) end
  end
end

-- pace_push: the bucket's release time is at least `tat`.
local function pace_push(bucket, tat)
  if (tonumber(redis.call('ZSCORE', RELEASES, bucket)) or 0) < tat then
    redis.call('ZADD', RELEASES, whole(tat), bucket)
  end
end
