-- acquire_all: may `cost` units of every limit pass now? Takes them from all, or from none.
--
-- KEYS   one bucket per limit
-- ARGV   one text: mode ('take' | 'peek'), now ('-' = ask Redis), then for each limit, ';' between them:
--        kind, four numbers that say the limit (bucket: interval (us; 0 = closed), burst, fresh (us until a new
--        one is full), keep (us); queue, a bucket of whose burst the last units are let in to wait: interval,
--        burst, how many those are, 0; fixed, sliding, log: count (0 = closed), period (us), 0, 0; quota: count,
--        and the borders that lib/quota tells of), cost
-- REPLY  one text: which limit refused or is nearest to empty (1-based), retry_after (us; 0 = passed, -1 = not
--        while closed), that limit's remaining (units) and reset_after (us), and, if they are let in to wait,
--        how long (us); or 'outside' and the time (us), for a quota whose borders are not those of now
--
-- What is unusual is included where it is needed: Redis makes each function anew at every run, at 0.3 us.
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/digits
local mode, at, rest = string.match(ARGV[1], '^(%l+) (%S+) (.+)$')
local now = clock(at == '-' and '' or at)
local limits, wait, which, delay, other = {}, 0, 1, 0, {}

for kind, as, a, b, c, d, cost in string.gmatch(rest, '(%l+) ((%d+) (%d+)) (%d+) (%d+) (%d+)') do
  local i, slot = #limits + 1, math.huge
  local limit
  if kind == 'bucket' or kind == 'queue' then
    limit = {as = as, interval = tonumber(a), burst = tonumber(b), keep = tonumber(d), cost = tonumber(cost)}
    local value, tat, seen, was = redis.call('GET', KEYS[i])
    if value then tat, seen, was = string.match(value, '^(%d+) (%d+) (.*)$') end
    if was == as and tonumber(seen) <= now then -- the usual, as in acquire
      limit.tat = tonumber(tat)
    elseif not value and (c == '0' or kind == 'queue') then
      limit.tat = now
    else
-- @include lib/bucket
      local changed
      limit.tat, changed = bucket_load(KEYS[i], now, limit, kind == 'bucket' and tonumber(c) or 0)
      if changed then bucket_store(KEYS[i], limit.tat, now, limit) end
    end
    if limit.interval > 0 then slot = gcra_slot(limit.tat, now, limit.interval, limit.burst, limit.cost) end
    if kind == 'queue' and limit.cost > 0 then delay = math.max(delay, slot - now + tonumber(c) * limit.interval) end
  else
    if not other[kind] and kind == 'fixed' then
-- @include lib/fixed
      other.fixed = fixed
    elseif not other[kind] and kind == 'sliding' then
-- @include lib/sliding
      other.sliding = sliding
    elseif not other[kind] and kind == 'log' then
-- @include lib/log
      other.log = log
    elseif not other[kind] then
-- @include lib/quota
      other.quota = quota
    end
    limit = {by = other[kind], count = tonumber(a), period = tonumber(b), cost = tonumber(cost)}
    limit.from, limit.to, limit.after = limit.period, tonumber(c), tonumber(d)
    limit.state = limit.by.load(KEYS[i], now, limit)
    if not limit.state then return 'outside ' .. digits(now) end
    slot = limit.by.slot(limit.state, now, limit, KEYS[i])
  end
  if slot - now > wait then wait, which = slot - now, i end
  limits[i] = limit
end

local least, full = math.huge, now
local taking, seen = wait <= 0 and mode == 'take', digits(now)
for i, limit in ipairs(limits) do
  if taking and limit.cost > 0 then
    if limit.by then
      limit.by.take(KEYS[i], limit.state, now, limit)
    else
      limit.tat = gcra_take(limit.tat, now, limit.interval, limit.cost)
      local until_ms = math.ceil((limit.tat + limit.keep) / 1000) + 1
      redis.call('SET', KEYS[i], digits(limit.tat) .. ' ' .. seen .. ' ' .. limit.as, 'PXAT', digits(until_ms))
    end
  end
  if wait <= 0 or i == which then
    local remaining, reset = 0, limit.tat
    if limit.by then
      remaining, reset = limit.by.left(limit.state, now, limit)
    elseif limit.interval > 0 then
      remaining = gcra_remaining(reset, now, limit.interval, limit.burst)
    end
    if remaining < least then least, which, full = remaining, i, reset end
  end
end
local retry = wait == math.huge and '-1' or digits(wait)
local reply = string.format('%d %s %d %s', which, retry, least, digits(math.max(0, full - now)))
return (wait > 0 or delay == 0) and reply or reply .. ' ' .. digits(delay)
