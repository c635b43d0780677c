-- ahead_of: tasks that wait and would go before one of this lane and rank that came now: those of its lane, and
-- those of all lanes (which a limit common to all serves one after the other).
local function ahead_of(lane, rank)
  local all = redis.call('ZCARD', LINE)
  local here = redis.call('ZLEXCOUNT', LINE, '[' .. lane .. '|', '(' .. lane .. '}')
  local behind = '(' .. lane .. '|' .. string.char(string.byte(rank) + 1)
  local before = redis.call('ZLEXCOUNT', LINE, '[' .. lane .. '|', behind)
  return before, all - here + before
end

-- ahead_wait: when a task that came now would start, if those ahead cost what it costs; us from now. A closed
-- limit tells nothing of that, and is left out; the second result is whether there is one.
local function ahead_wait(found, limits, now, before, all)
  local wait, closed = 0, false
  for i, limit in ipairs(limits) do
    local cost = found[i].cost
    if limit.interval == 0 then
      closed = true
    elseif limit.by and found[i].shut then -- then as many as it counts in each of its periods
      local periods = math.floor((limit.wide and all or before) * cost / limit.count)
      wait = math.max(wait, found[i].shut - now + periods * (limit.period or limit.to - limit.from))
    else
      local tat = math.max(found[i].tat, now) + (limit.wide and all or before) * cost * limit.interval
      wait = math.max(wait, gcra_slot(tat, now, limit.interval, limit.burst, cost) - now)
    end
  end
  return wait, closed
end

-- ahead_beyond: whether the entry would wait longer, or behind more, than it may: {'full', its wait (us), how
-- long until that is no longer so (us)}; else nil.
local function ahead_beyond(entry, found, limits, now)
  if entry.longest == 0 and entry.most == 0 then return nil end
  local before, all = ahead_of(entry.lane, entry.rank)
  local wait = ahead_wait(found, limits, now, before, all)
  local over = math.max(0, entry.longest > 0 and wait - entry.longest or 0)
  local parked = redis.call('ZCARD', LINE) + redis.call('ZCARD', DELAYED)
  if entry.most > 0 and parked >= entry.most then
    local spacing = 0 -- us from one task to the next; of a closed limit nobody knows: a minute
    for i, limit in ipairs(limits) do
      local interval = limit.interval
      if limit.by == 'quota' and limit.count > 0 then interval = (limit.to - limit.from) / limit.count end
      spacing = math.max(spacing, interval > 0 and found[i].cost * interval or 60000000)
    end
    over = math.max(over, (parked - entry.most + 1) * spacing, 1)
  end
  if over > 0 then return {'full', math.ceil(wait), math.ceil(over)} end
end
