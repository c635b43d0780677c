-- enter_again: the id is taken. By this very message, if the reply to it was lost and it asks again: then it
-- hears what has become of it. Else by another, sent with the id of one that still waits: nil.
local function enter_again(now, entry)
  local value = redis.call('HGET', MESSAGES, entry.id)
  local there = value and entry_read(entry.id, value)
  if not there or there.copy ~= entry.copy or entry.copy == '' then return nil end
  local ticket = flight_ticket(entry.id)
  if ticket and ticket ~= '' then return {'go', ticket, whole(now), whole(now), entry.id, 0} end
  return {'parked', whole(now), whole(now), entry.id}
end

-- enter_shut: limits that count in windows and are used up let nothing out until then.
local function enter_shut(limits, entry, now)
  for i, limit in ipairs(limits) do
    local bucket = KEYS[11 + i]
    if limit.by and bucket and string.find(bucket, ':' .. limit.name .. '|', 1, true) then
      local slot = counted_slot(limit, KEYS[11 + i], tonumber(entry.costs[i]), now)
      if slot > now then pace_shut(limit.name .. '|' .. (entry.keys[i] or '-'), slot) end
    end
  end
end

-- enter: a task asks to go. It goes if its turn is now and nobody waits whom it would overtake; else it
-- is parked, as it is in any case with `wait_anyway`. Either way Redis keeps its message until the body starts.
--   reply {'go', ticket, slot, now, id, calm}    flies now, may start at `slot`; calm = far from biting
--         {'parked', slot, now, id}              waits; slot = when its bucket would allow, at the earliest
--         {'full', wait, over}                   the backlog is beyond the bounds it was given (lib/ahead)
local function enter(now, entry, ahead, lease, channel, scope, wait_anyway)
  local limits, window = limits_read(now)
  if not limits then return UNDECLARED end
  local stepped
  entry.seq, stepped = next_seq(now)
  if stepped then lane_rewind(now, lease) end
  local text = entry_write(entry)
  if redis.call('HSETNX', MESSAGES, entry.id, text) == 0 then
    local known = enter_again(now, entry)
    if known then return known end
    entry.id = entry.id .. '+' .. entry.seq
    redis.call('HSET', MESSAGES, entry.id, text)
  end
  if entry.eta > now + ahead then
    redis.call('ZADD', DELAYED, whole(entry.eta), entry.id)
    wake(entry.eta - ahead, channel, scope)
    return {'parked', whole(entry.eta), whole(now), entry.id}
  end

  local alone, common = redis.call('EXISTS', LINE) == 0, false
  for _, limit in ipairs(limits) do common = common or limit.wide end
  local state = alone and 'idle' or lane_state(entry.lane)
  local overtakes = not alone and (common or state ~= 'idle')
  if limits.counted then enter_shut(limits, entry, now) end
  local slot, wide, found = pace(limits, entry, now)
  slot = math.max(slot, entry.eta)
  if not wait_anyway and not overtakes and slot <= now + ahead and redis.call('ZCARD', FLIGHT) < window then
    local calm = pace_take(limits, found, slot, now) and alone
    flight_add(entry.id, entry.seq, 1, now + lease)
    redis.call('HINCRBY', META, 'granted', 1)
    return {'go', entry.seq, whole(slot), whole(now), entry.id, calm and 1 or 0}
  end

  local full = ahead_beyond(entry, found, limits, now)
  if full then
    redis.call('HDEL', MESSAGES, entry.id)
    return full
  end
  redis.call('ZADD', LINE, 0, entry_place(entry))
  redis.call('HINCRBY', META, 'parked', 1)
  if state == 'idle' then
    if slot > now + ahead and not wide then lane_wait(entry, slot, ahead) else lane_join(entry.lane) end
    wake(slot - ahead, channel, scope)
  elseif state == 'waiting' and lane_head(entry.lane) == entry.id then -- more urgent than the one it waits for
    lane_join(entry.lane)
    wake(slot - ahead, channel, scope)
  end
  return {'parked', whole(math.min(slot, NEVER)), whole(now), entry.id}
end
