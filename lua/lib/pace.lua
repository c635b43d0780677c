-- Release times: RELEASES holds a TAT per bucket, which paces what is let out to the broker. Starts have
-- their own (the truth); start.lua keeps the release time from falling behind it.

-- pace: when the entry may be released, and whether what holds it then is common to all lanes.
local function pace(limits, entry, now)
  local slot, wide = now, false
  for i, limit in ipairs(limits) do
    local held
    if limit.interval == 0 then
      held = math.huge
    else
      local tat = redis.call('ZSCORE', RELEASES, limit.name .. '|' .. (entry.keys[i] or '-'))
      local cost = tonumber(entry.costs[i] or '1')
      held = gcra_slot(tonumber(tat) or now + limit.fresh, now, limit.interval, limit.burst, cost)
    end
    if held > slot then slot, wide = held, limit.wide end
  end
  return slot, wide
end

-- pace_take: charge the release at `slot`.
local function pace_take(limits, entry, slot, now)
  for i, limit in ipairs(limits) do
    local bucket = limit.name .. '|' .. (entry.keys[i] or '-')
    local tat = tonumber(redis.call('ZSCORE', RELEASES, bucket)) or now + limit.fresh
    local cost = tonumber(entry.costs[i] or '1')
    if cost > 0 then
      redis.call('ZADD', RELEASES, whole(gcra_take(tat, slot, limit.interval, cost)), bucket)
    end
  end
end

-- pace_push: the bucket's release time is at least `tat`.
local function pace_push(bucket, tat)
  if (tonumber(redis.call('ZSCORE', RELEASES, bucket)) or 0) < tat then
    redis.call('ZADD', RELEASES, whole(tat), bucket)
  end
end

-- pace_expire: all of them are forgotten a day after the last is full.
local function pace_expire()
  local last = redis.call('ZRANGE', RELEASES, -1, -1, 'WITHSCORES')
  if last[2] then redis.call('PEXPIREAT', RELEASES, whole((tonumber(last[2]) + DAY) / 1000)) end
end
