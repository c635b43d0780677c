-- acquire_all: may `cost` units of every limit pass now? Takes them from all, or from none.
--
-- KEYS   one bucket per limit
-- ARGV   one text: mode ('take' | 'peek'), now ('-' = ask Redis), then for each limit, ';' between them:
--        interval (us; 0 = closed), burst, fresh (us until a new bucket is full), keep (us), cost
-- REPLY  one text: which limit refused or is nearest to empty (1-based), retry_after (us; 0 = passed, -1 = not
--        while closed), that limit's remaining (units) and reset_after (us)
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/digits
-- @include lib/bucket
local mode, at, rest = string.match(ARGV[1], '^(%l+) (%S+) (.+)$')
local now = clock(at == '-' and '' or at)
local limits, wait, which = {}, 0, 1

for text in string.gmatch(rest, '[^;]+') do
  local as, interval, burst, fresh, keep, cost = string.match(text, '^((%d+) (%d+)) (%d+) (%d+) (%d+)$')
  interval, burst, cost = tonumber(interval), tonumber(burst), tonumber(cost)
  local i, tat, seen, was = #limits + 1
  local limit = {as = as, interval = interval, burst = burst, keep = tonumber(keep), cost = cost, tat = 0}
  local value = redis.call('GET', KEYS[i])
  if value then tat, seen, was = string.match(value, '^(%d+) (%d+) (.*)$') end
  if was == as and tonumber(seen) <= now then -- the usual, as in acquire
    limit.tat = tonumber(tat)
  else
    local changed
    limit.tat, changed = bucket_load(KEYS[i], now, limit, tonumber(fresh))
    if changed then bucket_store(KEYS[i], limit.tat, now, limit) end
  end
  local held = interval > 0 and gcra_slot(limit.tat, now, interval, burst, cost) - now or math.huge
  if held > wait then wait, which = held, i end
  limits[i] = limit
end

local least, remaining = math.huge, 0
if wait <= 0 then
  local taking, seen = mode == 'take', digits(now)
  for i, limit in ipairs(limits) do
    if taking and limit.cost > 0 then
      limit.tat = gcra_take(limit.tat, now, limit.interval, limit.cost)
      local until_ms = math.ceil((limit.tat + limit.keep) / 1000) + 1
      redis.call('SET', KEYS[i], digits(limit.tat) .. ' ' .. seen .. ' ' .. limit.as, 'PXAT', digits(until_ms))
    end
    remaining = gcra_remaining(limit.tat, now, limit.interval, limit.burst)
    if remaining < least then least, which = remaining, i end
  end
end

local shown = limits[which]
if wait <= 0 then
  remaining = least
elseif shown.interval > 0 then
  remaining = gcra_remaining(shown.tat, now, shown.interval, shown.burst)
end
local retry = wait == math.huge and '-1' or digits(wait)
return string.format('%d %s %d %s', which, retry, remaining, digits(math.max(0, shown.tat - now)))
