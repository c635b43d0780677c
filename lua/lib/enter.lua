-- enter: a task asks to go. It goes if its turn is now and nobody waits whom it would overtake; else it
-- is parked, as it is in any case with `wait_anyway`. Either way Redis keeps its message until the body starts.
--   reply {'go', ticket, slot, now, id}          flies now, may start at `slot`
--         {'parked', slot, now, id}              waits; slot = when its bucket would allow, at the earliest
local function enter(now, entry, ahead, lease, channel, scope, wait_anyway)
  local limits, window = limits_read()
  if not limits then return UNDECLARED end
  entry.seq = next_seq(now)
  if redis.call('HEXISTS', MESSAGES, entry.id) == 1 then entry.id = entry.id .. '+' .. entry.seq end
  entry_store(entry)
  if entry.eta > now + ahead then
    redis.call('ZADD', DELAYED, whole(entry.eta), entry.id)
    wake(entry.eta - ahead, channel, scope)
    return {'parked', whole(entry.eta), whole(now), entry.id}
  end

  local idle = lane_idle(entry.lane)
  local common = false
  for _, limit in ipairs(limits) do common = common or limit.wide end
  local overtakes = not idle or (common and redis.call('EXISTS', LINE) == 1)
  local slot, wide = pace(limits, entry, now)
  slot = math.max(slot, entry.eta)
  if not wait_anyway and not overtakes and slot <= now + ahead and redis.call('ZCARD', FLIGHT) < window then
    pace_take(limits, entry, slot, now)
    pace_expire()
    flight_add(entry.id, entry.seq, 1, now + lease)
    redis.call('HINCRBY', META, 'granted', 1)
    return {'go', entry.seq, whole(slot), whole(now), entry.id}
  end

  redis.call('ZADD', LINE, 0, entry_place(entry))
  redis.call('HINCRBY', META, 'parked', 1)
  if idle and slot > now + ahead and not wide then
    redis.call('ZADD', WAITING, whole(math.min(slot, NEVER)), entry.lane)
  elseif idle then
    lane_join(entry.lane)
  end
  if idle then wake(slot - ahead, channel, scope) end
  return {'parked', whole(math.min(slot, NEVER)), whole(now), entry.id}
end
