-- turn_at: the earliest moment at which its start buckets (KEYS after the scope's eleven) allow a task to
-- start; and their TATs.
local function turn_at(limits, keys, costs, now)
  local at, tats = now, {}
  for i, limit in ipairs(limits) do
    local bucket = KEYS[11 + i]
    if not bucket then break end -- a worker of an older release knows fewer limits
    local fresh, changed = limit.fresh
    if fresh > 0 and redis.call('ZSCORE', RELEASES, limit.name .. '|' .. keys[i]) then fresh = 0 end -- waited out there
    tats[i], changed = bucket_load(bucket, now, limit, fresh)
    if changed then bucket_store(bucket, tats[i], now, limit) end
    if limit.interval == 0 then
      at = math.huge
    else
      at = math.max(at, gcra_slot(tats[i], now, limit.interval, limit.burst, tonumber(costs[i])))
    end
  end
  return at, tats
end

-- turn_later: the task is parked again, at the head of its lane. It was late, not lost: no attempt is counted.
local function turn_later(entry, limits, tats, now)
  local _, attempt = flight_ticket(entry.id)
  flight_recall(entry.id, now)
  flight_orphan(entry, now)
  redis.call('HSET', TICKETS, entry.id, ' ' .. math.max(0, attempt - 1))
  lane_return(entry)
  pace_return(limits, entry, now)
  for i, tat in ipairs(tats) do pace_push(limits[i].name .. '|' .. (entry.keys[i] or '-'), tat) end
  redis.call('HINCRBY', META, 'reparked', 1)
end
