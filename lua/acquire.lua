-- acquire: may `cost` units pass now? Takes them from every bucket, or from none.
--
-- KEYS   one bucket per limit
-- ARGV   one text (each argument more costs a client 1.3 us, each number in a reply 1.5): mode ('take' |
--        'peek'), now ('-' = ask Redis), then for each limit: interval (us; 0 = closed), burst, fresh (us
--        until a new bucket is full), keep (us), cost
-- REPLY  one text: allowed (1|0), retry_after (us; -1 = not while closed), which limit refused or is
--        nearest to empty (1-based), its remaining (units), its reset_after (us)
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/bucket
local mode, at, rest = string.match(ARGV[1], '^(%a+) ([%d-]+)()')
local now = clock(at == '-' and '' or at)
local limits, wait, which = {}, 0, 1

for interval, burst, fresh, keep, cost in string.gmatch(string.sub(ARGV[1], rest), '(%d+) (%d+) (%d+) (%d+) (%d+)') do
  local i = #limits + 1
  local limit = {interval = tonumber(interval), burst = tonumber(burst), keep = tonumber(keep), cost = tonumber(cost)}
  local changed
  limit.tat, changed = bucket_load(KEYS[i], now, limit, tonumber(fresh))
  if changed then bucket_store(KEYS[i], limit.tat, now, limit) end
  local held = math.huge
  if limit.interval > 0 then held = gcra_slot(limit.tat, now, limit.interval, limit.burst, limit.cost) - now end
  if held > wait then wait, which = held, i end
  limits[i] = limit
end

local nearest = math.huge
for i, limit in ipairs(limits) do
  limit.remaining = 0
  if wait <= 0 and mode == 'take' and limit.cost > 0 then
    limit.tat = gcra_take(limit.tat, now, limit.interval, limit.cost)
    bucket_store(KEYS[i], limit.tat, now, limit)
  end
  if limit.interval > 0 then limit.remaining = gcra_remaining(limit.tat, now, limit.interval, limit.burst) end
  if wait <= 0 and limit.remaining < nearest then nearest, which = limit.remaining, i end
end

local shown = limits[which]
local retry = wait == math.huge and -1 or wait
local reset = math.max(0, shown.tat - now)
return string.format('%d %.0f %d %.0f %.0f', wait <= 0 and 1 or 0, retry, which, shown.remaining, reset)
