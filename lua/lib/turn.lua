-- Each start bucket (KEYS after the scope's eleven) has two TATs. The first is of starts counted: who asks
-- first has the first slot, though each process waits out its own. The second is of starts begun, and the
-- bound holds by that: a process that was kept from running begins late, and those behind it then later.

-- turn_at: the earliest moment at which the buckets allow one more start to be counted; and both their TATs (of
-- a limit that counts in windows: that moment).
local function turn_at(limits, keys, costs, now)
  local at, tats, begun = now, {}, {}
  for i, limit in ipairs(limits) do
    local bucket, cost = KEYS[11 + i], tonumber(costs[i])
    -- A worker of another release knows fewer limits, or another kind of this one.
    if not bucket or not string.find(bucket, ':' .. limit.name .. '|', 1, true) then break end
    if limit.by then
      tats[i] = counted_slot(limit, bucket, cost, now)
      at = math.max(at, tats[i])
    else
      local fresh, changed = limit.fresh
      local paced = fresh > 0 and redis.call('ZSCORE', RELEASES, limit.name .. '|' .. keys[i])
      if paced then fresh = 0 end -- waited out there
      tats[i], changed, begun[i] = bucket_load(bucket, now, limit, fresh)
      if changed then bucket_store(bucket, tats[i], now, limit, begun[i]) end
      local slot = limit.interval > 0 and gcra_slot(tats[i], now, limit.interval, limit.burst, cost)
      at = math.max(at, slot or math.huge)
    end
  end
  return at, tats, begun
end

-- turn_used_up: how long until the limits that count in windows have room; closed ones aside (nobody knows).
local function turn_used_up(limits, tats, now)
  local wait = 0
  for i, tat in ipairs(tats) do
    if limits[i].by and tat < math.huge then wait = math.max(wait, tat - now) end
  end
  return wait
end

-- turn_take: it is counted for `at`.
local function turn_take(limits, costs, at, now, tats, begun)
  for i, tat in ipairs(tats) do
    local limit, bucket = limits[i], KEYS[11 + i]
    if limit.by then
      local by = counted[limit.by]
      if limit.cost > 0 then by.take(bucket, by.load(bucket, at, limit), at, limit) end
    else
      local work = tonumber(costs[i]) * limit.interval
      begun[i] = begun[i] or tat
      if work > 0 then
        tats[i] = math.max(tat, at) + work
        bucket_store(bucket, tats[i], now, limit, begun[i])
      end
    end
  end
end

-- turn_pace: the release times follow, behind what the `others` under way will take, too.
local function turn_pace(limits, keys, costs, at, now, slot, tats, others, ahead)
  for i, tat in ipairs(tats) do
    local limit, work = limits[i], tonumber(costs[i]) * limits[i].interval
    if work > 0 and not limit.by then
      local queue = limit.wide and math.max(0, math.min(others * work, ahead)) or 0
      local pull = slot > 0 and now <= slot and slot < at and work / 100 or 0
      pace_follow(limit.name .. '|' .. keys[i], tat + queue, ahead, pull)
    end
  end
end

-- turn_moment: when a start counted for `slot` may begin; and what each TAT would be by then had it come in time.
-- `late`: it was to begin then, and did not. Moving a start by d moves the TAT by d at most (a TAT is the maximum
-- of what each start and those after it add up to), so where the bucket would hold it even as the last of all,
-- it begins at once and the TAT moves; else it takes a new turn, and the one it missed is nobody's.
local function turn_moment(limits, costs, slot, now, tats, begun, late)
  local at, moved, planned = math.max(now, slot), {}, {}
  for i, tat in ipairs(tats) do
    local limit, cost = limits[i], tonumber(costs[i])
    local work = cost * limit.interval
    if limit.by then
      moved[i], limit.cost = false, cost
      limit.anew = cost > 0 and counted[limit.by].back(KEYS[11 + i], slot, limit)
      if limit.anew then at = math.max(at, counted_slot(limit, KEYS[11 + i], cost, now)) end
    else
      begun[i] = begun[i] or tat -- a request has written it since: all that was counted may have begun
      moved[i] = late and begun[i] <= slot + limit.burst * limit.interval and work
      if work > 0 and not moved[i] then
        at = math.max(at, gcra_slot(begun[i], now, limit.interval, limit.burst, cost))
      end
    end
  end
  for i, work in ipairs(moved) do
    planned[i] = (begun[i] or 0) - (work or 0)
    if work then begun[i] = math.min(planned[i] + at - slot, math.max(begun[i], at)) end
  end
  return at, planned
end

-- turn_begin: it begins at `at`. Those counted behind it come as much later as time was lost by that (their own
-- work at most). Returns how late it may be without any loss.
local function turn_begin(limits, costs, slot, at, now, tats, begun, planned)
  local slack = math.huge
  for i, tat in ipairs(tats) do
    local limit, work = limits[i], tonumber(costs[i]) * limits[i].interval
    if limit.by then
      local by, bucket = counted[limit.by], KEYS[11 + i]
      if limit.anew then by.take(bucket, by.load(bucket, at, limit), at, limit) end
      slack = 0
    elseif work > 0 then
      local lost = math.max(begun[i], at) - math.max(planned[i], slot)
      if at > now and now - slot >= work then lost = work end -- its turn was nobody's, and it takes another's
      slack = math.min(slack, math.max(0, begun[i] - at))
      begun[i] = math.max(begun[i], at) + work
      bucket_store(KEYS[11 + i], math.max(tat + math.min(lost, work), begun[i]), now, limit, begun[i])
    end
  end
  return slack
end

-- turn_later: the task is parked again, at the head of its lane. It was late, not lost: no attempt is counted.
local function turn_later(entry, limits, tats, now)
  local _, attempt = flight_ticket(entry.id)
  flight_recall(entry.id, now)
  flight_orphan(entry, now)
  redis.call('HSET', TICKETS, entry.id, ' ' .. math.max(0, attempt - 1))
  lane_return(entry)
  pace_return(limits, entry, now)
  for i, tat in ipairs(tats) do
    local bucket = limits[i].name .. '|' .. (entry.keys[i] or '-')
    if not limits[i].by then
      pace_push(bucket, tat)
    elseif tat > now then
      pace_shut(bucket, tat)
    end
  end
  redis.call('HINCRBY', META, 'reparked', 1)
end
