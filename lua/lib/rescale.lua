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
