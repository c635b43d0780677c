-- A sliding window of two counters: those of this period of the clock, and those of the one before, weighted by
-- how much of it a window that ends now still covers (Cloudflare, "Counting things, a lot of different things",
-- 2017). One string key: '<start> <used> <before> <seen>'. It takes the units of the last period for evenly
-- spread, so a burst at its end is counted too low: up to twice the count may pass in a window. `limit`: period
-- (us), count (0 = closed), cost.
local sliding = {}

local function sliding_store(key, state, now, limit)
  local value = string.format('%.0f %d %d %.0f', state.start, state.used, state.before, now)
  redis.call('SET', key, value, 'PXAT', math.ceil((state.start + 2 * limit.period) / 1000) + 1)
end

-- load: the periods of now. A clock that stands before `seen` has stepped back: they move with it.
function sliding.load(key, now, limit)
  local value = redis.call('GET', key)
  local state = {start = now - now % limit.period, used = 0, before = 0}
  if value then
    local start, used, before, seen = string.match(value, '^(%d+) (%d+) (%d+) (%d+)$')
    local step = math.max(0, tonumber(seen) - now)
    start = tonumber(start) - step
    local past = math.floor((now - start) / limit.period)
    if past <= 0 then
      state.start, state.used, state.before = start, tonumber(used), tonumber(before)
    elseif past == 1 then
      state.start, state.before = start + limit.period, tonumber(used)
    end
    if step > 0 then sliding_store(key, state, now, limit) end
  end
  return state
end

-- sliding_from: us into a period from which `room` units are free beside what is left of `before`.
local function sliding_from(before, room, period)
  return before <= room and 0 or math.ceil(period - room * period / before)
end

function sliding.slot(state, now, limit)
  if limit.count == 0 then return math.huge end
  local room, period = limit.count - state.used - limit.cost, limit.period
  if room >= 0 then return math.max(now, state.start + sliding_from(state.before, room, period)) end
  return state.start + period + sliding_from(state.used, limit.count - limit.cost, period)
end

function sliding.take(key, state, now, limit)
  state.used = state.used + limit.cost
  sliding_store(key, state, now, limit)
end

-- give: first to this period, then to the one before.
function sliding.give(key, state, now, limit)
  local here = math.min(limit.cost, state.used)
  state.before = math.max(0, state.before - (limit.cost - here))
  limit.cost = -here
  if state.used + state.before > 0 or here > 0 then sliding.take(key, state, now, limit) end
end

function sliding.left(state, now, limit)
  local period, since = limit.period, now - state.start
  local units = limit.count - state.used - math.ceil(state.before * (period - since) / period)
  -- Rounded as `slot` rounds, so that what is said to be left passes, and no more.
  local room = limit.count - state.used
  while units < room and sliding_from(state.before, room - units - 1, period) <= since do units = units + 1 end
  while units > 0 and sliding_from(state.before, room - units, period) > since do units = units - 1 end
  local full = state.used > 0 and state.start + 2 * period or state.before > 0 and state.start + period or now
  return math.max(0, units), full
end
