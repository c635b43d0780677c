-- acquire: may `cost` units pass now? Takes them from every bucket, or from none.
--
-- KEYS   one bucket per limit
-- ARGV   now ('' = ask Redis), mode ('take' | 'peek'), then for each limit one text (one argument costs less
--        than five): '<interval us; 0 = closed> <burst> <fresh us until a new bucket is full> <keep us> <cost>'
-- REPLY  {allowed 1|0, retry_after (us; -1 = not while closed), which limit refused or is nearest to
--        empty (1-based), its remaining (units), its reset_after (us)}
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/bucket
local now = clock(ARGV[1])
local limits, wait, which = {}, 0, 1

for i, key in ipairs(KEYS) do
  local interval, burst, fresh, keep, cost = string.match(ARGV[i + 2], '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  local limit = {interval = tonumber(interval), burst = tonumber(burst), keep = tonumber(keep), cost = tonumber(cost)}
  local rewound
  limit.tat, rewound = bucket_load(key, now, now + tonumber(fresh))
  if rewound then bucket_store(key, limit.tat, now, limit.keep) end
  local held = math.huge
  if limit.interval > 0 then held = gcra_slot(limit.tat, now, limit.interval, limit.burst, limit.cost) - now end
  if held > wait then wait, which = held, i end
  limits[i] = limit
end

local nearest = math.huge
for i, limit in ipairs(limits) do
  limit.remaining = 0
  if wait <= 0 and ARGV[2] == 'take' and limit.cost > 0 then
    limit.tat = gcra_take(limit.tat, now, limit.interval, limit.cost)
    bucket_store(KEYS[i], limit.tat, now, limit.keep)
  end
  if limit.interval > 0 then limit.remaining = gcra_remaining(limit.tat, now, limit.interval, limit.burst) end
  if wait <= 0 and limit.remaining < nearest then nearest, which = limit.remaining, i end
end

local shown = limits[which]
local retry = wait == math.huge and -1 or wait
return {wait <= 0 and 1 or 0, retry, which, shown.remaining, math.max(0, shown.tat - now)}
