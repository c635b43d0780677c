-- A quota: so many units in each period of a calendar. Where its periods begin and end, the caller says (months
-- and days depend on a time zone, which Redis has not). One string key: '<start> <used>'. `limit`: count (0 =
-- closed), cost, and three borders (us): the period of now, by the caller's clock, lies between the first two,
-- and the next ends at the third.
local quota = {}

-- load: nil where now lies outside the borders; the caller then figures them anew by the clock of Redis.
function quota.load(key, now, limit)
  local from, to = limit.from, limit.to
  if now >= to then from, to = to, limit.after end
  if now < from or now >= to then return nil end
  local value = redis.call('GET', key)
  local start, used = string.match(value or '', '^(%d+) (%d+)$')
  start = tonumber(start)
  if start and start >= from then -- of this one; or of the next, for which a start waits (or the clock stepped back)
    return {start = start, used = tonumber(used), to = start < to and to or limit.after}
  end
  return {start = from, used = 0, to = to}
end

function quota.slot(state, now, limit)
  if limit.count == 0 then return math.huge end
  return math.max(state.used + limit.cost <= limit.count and now or state.to, state.start)
end

function quota.take(key, state, _, limit)
  state.used = state.used + limit.cost
  redis.call('SET', key, string.format('%.0f %d', state.start, state.used), 'PXAT', math.ceil(state.to / 1000) + 1)
end

function quota.back(_, slot, limit)
  return slot < limit.from -- else it counts for the same period
end

function quota.give(key, state, now, limit)
  limit.cost = -math.min(limit.cost, state.used)
  if limit.cost < 0 then quota.take(key, state, now, limit) end
end

function quota.left(state, now, limit)
  return math.max(0, limit.count - state.used), state.used > 0 and state.to or now
end
