-- refund: give `cost` units back to every limit; never beyond full.
--
-- KEYS   one bucket per limit
-- ARGV   one text: now ('-' = ask Redis), then for each limit, ';' between them: kind, four numbers that say the
--        limit (as for acquire_all), cost
-- REPLY  1; or 'outside' and the time (us), for a quota whose borders are not those of now
--
-- @include lib/clock
-- @include lib/digits
-- @include lib/bucket
-- @include lib/fixed
-- @include lib/sliding
-- @include lib/log
-- @include lib/quota
local other = {fixed = fixed, sliding = sliding, log = log, quota = quota}
local at, rest = string.match(ARGV[1], '^(%S+) (.+)$')
local now, limits = clock(at == '-' and '' or at), {}

for kind, a, b, c, d, cost in string.gmatch(rest, '(%l+) (%d+) (%d+) (%d+) (%d+) (%d+)') do
  local i = #limits + 1
  local limit = {by = other[kind], cost = tonumber(cost)}
  if not limit.by then
    limit.interval, limit.burst, limit.keep = tonumber(a), tonumber(b), tonumber(d)
  else
    limit.count, limit.period, limit.from = tonumber(a), tonumber(b), tonumber(b)
    limit.to, limit.after = tonumber(c), tonumber(d)
    limit.state = limit.by.load(KEYS[i], now, limit)
    if not limit.state then return 'outside ' .. digits(now) end
  end
  limits[i] = limit
end

for i, limit in ipairs(limits) do
  if limit.by then
    limit.by.give(KEYS[i], limit.state, now, limit)
  else
    local tat = bucket_load(KEYS[i], now, limit, 0)
    if tat > now and limit.cost > 0 then
      bucket_store(KEYS[i], math.max(now, tat - limit.cost * limit.interval), now, limit)
    end
  end
end
return 1
