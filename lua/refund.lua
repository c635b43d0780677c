-- refund: give `cost` units back to every limit; never beyond full.
--
-- KEYS   one bucket per limit
-- ARGV   one text: now ('-' = ask Redis), then for each limit, ';' between them: kind, four numbers that say the
--        limit (as for acquire_all), cost, and, to undo what was just taken, when that was (us): then what may have
--        come back by itself since is not given back, nor anything to a later window, so that no more passes than
--        if nothing had been taken
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

for said in string.gmatch(rest, '[^;]+') do
  local kind, a, b, c, d, cost, since = string.match(said, '^(%l+) (%d+) (%d+) (%d+) (%d+) (%d+) ?(%d*)$')
  local i = #limits + 1
  local limit = {by = other[kind], cost = tonumber(cost), since = tonumber(since)}
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
    local begin = limit.state.start or now - limit.period + 1 -- of what counts now
    if not limit.since or limit.since >= begin then limit.by.give(KEYS[i], limit.state, now, limit) end
  else
    local tat, back = bucket_load(KEYS[i], now, limit, 0), limit.cost * limit.interval
    if limit.since then back = back - math.max(0, now - limit.since) end
    if tat > now and back > 0 then bucket_store(KEYS[i], math.max(now, tat - back), now, limit) end
  end
end
return 1
