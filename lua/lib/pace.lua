-- Release times: RELEASES holds a TAT per bucket, which paces what is let out to the broker. Starts have
-- their own (the truth); start.lua keeps the release time from falling far behind it.

-- counted_slot: the earliest moment by a limit that counts in windows.
local function counted_slot(limit, bucket, cost, now)
  limit.cost = cost
  local by = counted[limit.by]
  return by.slot(by.load(bucket, now, limit), now, limit, bucket)
end

-- pace_expire: they are forgotten a day after the bucket last charged is full; at worst some tasks of a
-- bucket that is slower by days are then released early, and start.lua parks them again.
local function pace_expire(tat)
  redis.call('PEXPIREAT', RELEASES, whole((tat + DAY) / 1000))
end

-- pace_found: bucket, cost and TAT of a task under each limit; `new` where nothing is known of the bucket.
local function pace_found(limits, keys, costs, now)
  local found = {}
  for i, limit in ipairs(limits) do
    local bucket = limit.name .. '|' .. (keys[i] or '-')
    local tat = tonumber(redis.call('ZSCORE', RELEASES, bucket))
    local cost = tonumber(costs[i] or '1')
    found[i] = {bucket = bucket, cost = cost, tat = tat or now + limit.fresh, new = not tat}
    if limit.by then found[i].shut = tonumber(redis.call('ZSCORE', RELEASES, bucket .. '!')) end
  end
  return found
end

-- pace_of: so for an entry. The first use of a bucket that does not start full is remembered, else it would
-- never begin to fill.
local function pace_of(limits, entry, now)
  local found = pace_found(limits, entry.keys, entry.costs, now)
  for i, limit in ipairs(limits) do
    if found[i].new and limit.fresh > 0 then
      redis.call('ZADD', RELEASES, whole(found[i].tat), found[i].bucket)
      pace_expire(found[i].tat)
    end
  end
  return found
end

-- pace: when the entry may be released, whether what holds it then is common to all lanes, and what
-- pace_take needs.
local function pace(limits, entry, now)
  local slot, wide, found = now, false, pace_of(limits, entry, now)
  for i, limit in ipairs(limits) do
    local held = math.huge
    if limit.interval > 0 then held = gcra_slot(found[i].tat, now, limit.interval, limit.burst, found[i].cost) end
    if found[i].shut then held = math.max(held, found[i].shut) end
    if held > slot then slot, wide = held, limit.wide end
  end
  return slot, wide, found
end

-- pace_take: charge the release at `slot`; true if all its buckets are calm then.
local function pace_take(limits, found, slot, now)
  local last, calm = 0, true
  for i, limit in ipairs(limits) do
    local cost = found[i].cost
    local tat = gcra_take(found[i].tat, slot, limit.interval, cost)
    if cost > 0 then redis.call('ZADD', RELEASES, whole(tat), found[i].bucket) end
    calm = calm and not limit.by and gcra_calm(tat, now, limit.interval, limit.burst)
    last = math.max(last, tat)
  end
  pace_expire(last)
  return calm
end

-- pace_return: the release has led to no start, and none is charged for it: at one per hour, a scheduler
-- that died would else cost an hour.
local function pace_return(limits, entry, now)
  for i, charged in ipairs(pace_of(limits, entry, now)) do
    if charged.tat > now then
      redis.call('ZADD', RELEASES, whole(charged.tat - charged.cost * limits[i].interval), charged.bucket)
    end
  end
end

-- pace_follow: starts have come to `tat`. Release times may fall behind by `slack`, for a task that comes late
-- should cost its lateness once: pushed on by it at each start, 100/s made 59/s of a hop 17 ms longer than
-- release ahead. But then tasks come early and wait in pool slots; so while they do, the release time catches
-- up by `pull`, a hundredth of the interval: that costs 1 % of the rate at most.
local function pace_follow(bucket, tat, slack, pull)
  local paced = tonumber(redis.call('ZSCORE', RELEASES, bucket)) or 0
  local least = math.max(tat - slack, math.min(tat, paced + pull))
  if paced < least then
    redis.call('ZADD', RELEASES, whole(least), bucket)
    pace_expire(least)
  end
end

-- pace_push: the bucket's release time is at least `tat`.
local function pace_push(bucket, tat)
  if (tonumber(redis.call('ZSCORE', RELEASES, bucket)) or 0) < tat then
    redis.call('ZADD', RELEASES, whole(tat), bucket)
    pace_expire(tat)
  end
end

-- pace_shut: a limit that counts in windows is used up until then. What is let out before would come back.
local function pace_shut(bucket, till)
  redis.call('ZADD', RELEASES, whole(math.min(till, NEVER)), bucket .. '!')
  pace_expire(math.min(till, NEVER))
end
