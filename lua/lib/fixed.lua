-- A fixed window: so many units in each period of the clock (aligned to the epoch). One string key:
-- '<start> <used> <seen>'. Two windows that follow each other may let twice as many through around their border:
-- who cannot have that uses another algorithm. `limit`: period (us), count (0 = closed), cost.
local fixed = {}

local function fixed_store(key, state, now, limit)
  local value = string.format('%.0f %d %.0f', state.start, state.used, now)
  redis.call('SET', key, value, 'PXAT', math.ceil((state.start + limit.period) / 1000) + 1)
end

-- load: the window of now. A clock that stands before `seen` has stepped back: the window moves with it.
function fixed.load(key, now, limit)
  local value = redis.call('GET', key)
  local state = {start = now - now % limit.period, used = 0}
  if value then
    local start, used, seen = string.match(value, '^(%d+) (%d+) (%d+)$')
    local step = math.max(0, tonumber(seen) - now)
    start = tonumber(start) - step
    if start + limit.period > now then state.start, state.used = start, tonumber(used) end
    if step > 0 then fixed_store(key, state, now, limit) end
  end
  return state
end

-- slot: the earliest moment at which the cost may pass; not later than now: at once.
function fixed.slot(state, now, limit)
  if limit.count == 0 then return math.huge end
  return state.used + limit.cost <= limit.count and now or state.start + limit.period
end

-- take: it passes now.
function fixed.take(key, state, now, limit)
  state.used = state.used + limit.cost
  fixed_store(key, state, now, limit)
end

-- give: units come back that were not used.
function fixed.give(key, state, now, limit)
  limit.cost = -math.min(limit.cost, state.used)
  if limit.cost < 0 then fixed.take(key, state, now, limit) end
end

-- left: units that may pass now, and when all may again.
function fixed.left(state, now, limit)
  return math.max(0, limit.count - state.used), state.used > 0 and state.start + limit.period or now
end
