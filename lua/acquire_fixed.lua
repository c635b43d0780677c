-- acquire_fixed: may `cost` units of one fixed window pass now? Takes them, or nothing. What acquire_all answers of
-- such a limit alone, in 1.15 of the time of a GET and not 1.4 of it.
--
-- KEYS   the window
-- ARGV   one text: mode ('take' | 'peek'), now ('-' = ask Redis), count (0 = closed), period (us), cost
-- REPLY  as acquire_all has it: 1, retry_after (us; 0 = passed, -1 = not while closed), remaining, reset_after (us)
--
-- @include lib/clock
-- @include lib/digits
local mode, at, count, period, cost = string.match(ARGV[1], '^(%l+) (%S+) (%d+) (%d+) (%d+)$')
count, period, cost = tonumber(count), tonumber(period), tonumber(cost)
local now = clock(at == '-' and '' or at)

local start, used, value = now - now % period, 0, redis.call('GET', KEYS[1])
if value then
  local was, units, seen = string.match(value, '^(%d+) (%d+) (%d+)$')
  if tonumber(seen) > now then -- the clock has stepped back
-- @include lib/fixed
    local state = fixed.load(KEYS[1], now, {period = period})
    start, used = state.start, state.used
  elseif was + period > now then
    start, used = tonumber(was), tonumber(units)
  end
end

local ends = start + period
if count == 0 or used + cost > count then
  local retry = count == 0 and '-1' or digits(ends - now)
  return '1 ' .. retry .. ' ' .. math.max(0, count - used) .. ' ' .. (used > 0 and digits(ends - now) or '0')
end
if cost > 0 and mode == 'take' then
  used = used + cost
  local until_ms = math.ceil(ends / 1000) + 1
  redis.call('SET', KEYS[1], digits(start) .. ' ' .. used .. ' ' .. digits(now), 'PXAT', digits(until_ms))
end
return '1 0 ' .. (count - used) .. ' ' .. (used > 0 and digits(ends - now) or '0')
