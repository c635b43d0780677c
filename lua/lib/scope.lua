-- The keys of one scope, the same in the same order in every script of the backlog (key map: README).
local LIMITS, META, LINE, MESSAGES, READY, WAITING = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local DELAYED, FLIGHT, TICKETS, RELEASES, STALE = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]

local DAY = 86400 * 1000000 -- us
local MONTH_MS = 30 * 86400 * 1000
local NEVER = 9e15 -- us; the year 2255, and still a whole number in a double

-- The algorithms of limits that count in windows; a script that finds such a limit includes them.
local counted = {}

-- limit_counts: one that counts in windows, '<kind> <count> <period, or the borders of periods>'. False if now
-- lies outside the borders.
local function limit_counts(limit, said, now)
  local kind, count, more = string.match(said, '^(%l+) (%d+) (.*)$')
  limit.by, limit.count, limit.period = kind, tonumber(count), tonumber(more)
  if kind ~= 'quota' or not now then return true end
  local borders = {}
  for border in string.gmatch(more, '%d+') do borders[#borders + 1] = tonumber(border) end
  for b = 1, #borders - 2 do
    if borders[b] <= now and now < borders[b + 1] then
      limit.from, limit.to, limit.after = borders[b], borders[b + 1], borders[b + 2]
      return true
    end
  end
  return false
end

-- limits_read: the limits as declared, each with an operator's override applied; nil when nobody has declared
-- them (or the server lost them, or the last border of a quota is past): the caller declares and asks again.
local function limits_read(now)
  local flat = redis.call('HGETALL', LIMITS)
  local limits, over, window = {}, {}, 64
  for f = 1, #flat, 2 do
    local field, value = flat[f], flat[f + 1]
    if field == 'window' then
      window = tonumber(value)
    elseif string.sub(field, 1, 5) == 'rate:' then
      over[tonumber(string.sub(field, 6))] = value
    else
      local interval, burst, fresh, keep, wide, name, more =
        string.match(value, '^(%d+) (%d+) (%d+) (%d+) ([01]) (%S*) ?(.*)$')
      local limit = {
        interval = tonumber(interval), burst = tonumber(burst), fresh = tonumber(fresh), keep = tonumber(keep),
        wide = wide == '1', name = name,
      }
      if more ~= '' then
        limits.counted = true
        if not limit_counts(limit, more, now) then return nil end
      end
      limits[tonumber(field)] = limit
    end
  end
  if #limits == 0 then return nil end
  for i, value in pairs(over) do
    local interval, burst = string.match(value, '^(%d+) (%d+)')
    if limits[i] then limits[i].interval, limits[i].burst = tonumber(interval), tonumber(burst) end
  end
  return limits, window
end

local UNDECLARED = {err = 'UNDECLARED the limits of this scope are not in Redis; declare them and ask again'}

-- split: 'a,b' -> {'a', 'b'}. Keys are percent-encoded, so no item is empty or holds a comma.
local function split(text)
  local items = {}
  for item in string.gmatch(text, '[^,]+') do items[#items + 1] = item end
  return items
end

-- next_seq: larger than every one before, even if the counter was lost: it never falls behind the clock. And
-- whether the clock has stepped back since the last one.
local function next_seq(now)
  local last = redis.call('HMGET', META, 'seq', 'seen')
  local seq = whole(math.max((tonumber(last[1]) or 0) + 1, now))
  redis.call('HSET', META, 'seq', seq, 'seen', whole(now))
  if not last[1] then redis.call('PEXPIRE', META, MONTH_MS) end
  return seq, now < (tonumber(last[2]) or 0)
end

-- wake: tell the scheduler, if it means to sleep beyond `at`.
local function wake(at, channel, scope)
  local planned = tonumber(redis.call('HGET', META, 'wake'))
  if planned and planned <= at then return end
  redis.call('HSET', META, 'wake', whole(math.min(at, NEVER)))
  if not planned then redis.call('PEXPIRE', META, MONTH_MS) end
  redis.pcall('PUBLISH', channel, scope) -- refused by an ACL without channels: the scheduler's sweep finds it
end
