-- The generic cell rate algorithm, "virtual scheduling" form (ITU-T I.371; ATM Forum TM 4.0).
-- A token bucket is one number, its TAT: the time at which it is full again. Times in microseconds.

-- gcra_slot: the earliest moment at which `cost` units may pass. Not later than now: at once.
local function gcra_slot(tat, now, interval, burst, cost)
  if cost == 0 then return now end
  -- A cost beyond the burst (which has shrunk since) passes when the bucket is full, and is charged in full.
  return math.max(tat, now) + (math.min(cost, burst) - burst) * interval
end

-- gcra_take: the TAT after `cost` units passed at `at`, which is gcra_slot's answer or later.
local function gcra_take(tat, at, interval, cost)
  return math.max(tat, at) + cost * interval
end

-- gcra_remaining: units that may pass back to back now.
local function gcra_remaining(tat, now, interval, burst)
  return math.max(0, math.floor(burst - math.max(0, tat - now) / interval))
end

-- gcra_calm: whether the bucket is at least nine tenths full (a closed one never is).
local function gcra_calm(tat, now, interval, burst)
  return interval > 0 and tat - now <= burst * interval / 10
end
