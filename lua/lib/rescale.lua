-- pace_rescale: release times under changed limits, as bucket_load does it for starts; true if any changed.
local function pace_rescale(before, after, now)
  local changes, changed = {}, false
  for i, limit in ipairs(after) do
    local old = before[i]
    if old and (old.interval ~= limit.interval or old.burst ~= limit.burst) then
      changes[limit.name], changed = {old, limit}, true
    end
  end
  if not changed then return false end
  local flat = redis.call('ZRANGEBYSCORE', RELEASES, '(' .. whole(now), '+inf', 'WITHSCORES')
  for m = 1, #flat, 2 do
    local change = changes[string.match(flat[m], '^([^|]*)|.*[^!]$')] -- not until when one is shut
    if change then
      local tat = bucket_rescale(tonumber(flat[m + 1]), now, change[1], change[2])
      redis.call('ZADD', RELEASES, whole(tat), flat[m])
    end
  end
  return true
end

-- pace_opened: limits that count in windows have another count: what was used up may not be so any more, and
-- starts will tell. True if any has.
local function pace_opened(before, after)
  local opened, any = {}, false
  for i, limit in ipairs(after) do
    local old = before[i]
    if old and (old.by or limit.by) and (old.by ~= limit.by or old.count ~= limit.count) then
      opened[limit.name], any = true, true
    end
  end
  if not any then return false end
  for _, member in ipairs(redis.call('ZRANGE', RELEASES, 0, -1)) do
    if opened[string.match(member, '^([^|]*)|')] then redis.call('ZREM', RELEASES, member) end
  end
  return true
end
