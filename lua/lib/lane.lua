-- Lanes: the parts of a backlog with one key combination. READY orders them by virtual time (start-time
-- fair queueing, Goyal 1996: who was served least goes next); WAITING by the moment their own bucket allows.

-- lane_state: 'ready', 'waiting' or 'idle'.
local function lane_state(lane)
  if redis.call('ZSCORE', READY, lane) then return 'ready' end
  return redis.call('ZSCORE', WAITING, lane) and 'waiting' or 'idle'
end

-- lane_join: look at this lane. It starts at the present virtual time: idling earns no credit.
local function lane_join(lane)
  redis.call('ZREM', WAITING, lane)
  redis.call('ZADD', READY, redis.call('HGET', META, 'vtime') or '0', lane)
end

-- lane_wait: leave the lane of this head alone until its own bucket allows, or the head has expired. It is
-- looked at `ahead` of that time.
local function lane_wait(entry, slot, ahead)
  if entry.expires > 0 then slot = math.min(slot, entry.expires + ahead + 1) end
  redis.call('ZREM', READY, entry.lane)
  redis.call('ZADD', WAITING, whole(math.min(slot, NEVER)), entry.lane)
end

-- lane_return: put an entry into the line, and its lane among those to look at.
local function lane_return(entry)
  redis.call('ZADD', LINE, 0, entry_place(entry))
  if not redis.call('ZSCORE', READY, entry.lane) then lane_join(entry.lane) end
end

-- lane_left: entries have left the line out of turn: the lane is empty, or has another head, which may go sooner.
local function lane_left(lane)
  redis.call('ZREM', WAITING, lane)
  if not redis.call('ZRANGEBYLEX', LINE, '[' .. lane .. '|', '(' .. lane .. '}', 'LIMIT', 0, 1)[1] then
    redis.call('ZREM', READY, lane)
  elseif not redis.call('ZSCORE', READY, lane) then
    lane_join(lane)
  end
end

-- lane_reconsider: the limits have changed: every waiting lane is looked at again.
local function lane_reconsider(now, channel, scope)
  for _, lane in ipairs(redis.call('ZRANGE', WAITING, 0, -1)) do lane_join(lane) end
  wake(now, channel, scope)
end

-- lane_rebuild: should Redis have lost the two sets (eviction, failover): every lane of the line is looked at.
local function lane_rebuild()
  local place = redis.call('ZRANGEBYLEX', LINE, '-', '+', 'LIMIT', 0, 1)[1]
  while place do
    local lane = string.sub(place, 1, string.find(place, '|', 1, true) - 1)
    lane_join(lane)
    place = redis.call('ZRANGEBYLEX', LINE, '(' .. lane .. '}', '+', 'LIMIT', 0, 1)[1]
  end
end

-- lane_rewind: the clock stepped back: release times are of no use, and leases would last too long. Starts
-- keep the bound.
local function lane_rewind(now, lease)
  redis.call('DEL', RELEASES)
  for _, lane in ipairs(redis.call('ZRANGE', WAITING, 0, -1)) do lane_join(lane) end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', FLIGHT, '(' .. whole(now + lease), '+inf')) do
    redis.call('ZADD', FLIGHT, whole(now + lease), id)
  end
end

-- lane_head: the id of its first entry and its place in the line; nil when the lane is empty.
local function lane_head(lane)
  local place = redis.call('ZRANGEBYLEX', LINE, '[' .. lane .. '|', '(' .. lane .. '}', 'LIMIT', 0, 1)[1]
  if not place then return nil end
  return place_id(place), place
end
