-- acquire: may `cost` units of one limit pass now? Takes them, or nothing. Of several limits: acquire_all.
--
-- KEYS   the bucket
-- ARGV   one text (each argument more costs a client 1 us): mode ('take' | 'peek'), now ('-' = ask Redis),
--        interval (us; 0 = closed), burst, fresh (us until a new bucket is full), keep (us), cost
-- REPLY  reset_after (us; >= 0) if they pass, else -1 - reset_after: all else about a bucket follows from it
--        (a text of three numbers costs 4 us more)
--
-- Requests wait for this one, so its usual way makes no table and no closure that it does not call: each costs
-- 0.3 to 0.8 us, where the three commands cost 5. The unusual goes by lib/bucket.
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/digits
local mode, at, as, interval, burst, fresh, keep, cost =
  string.match(ARGV[1], '^(%l+) (%S+) ((%d+) (%d+)) (%d+) (%d+) (%d+)$')
interval, burst, cost = tonumber(interval), tonumber(burst), tonumber(cost)
fresh, keep = tonumber(fresh), tonumber(keep)
local now = clock(at == '-' and '' or at)

local value, tat, seen, was = redis.call('GET', KEYS[1])
if value then tat, seen, was = string.match(value, '^(%d+) (%d+) (.*)$') end
if was == as and tonumber(seen) <= now then
  tat = tonumber(tat)
elseif not value and fresh == 0 then -- a new one, or forgotten as it was full
  tat = now
else -- of another rate, or begins less than full, or shared with tasks, or the clock has stepped back
-- @include lib/bucket
  local limit, changed = {interval = interval, burst = burst, keep = keep}
  tat, changed = bucket_load(KEYS[1], now, limit, fresh)
  if changed then bucket_store(KEYS[1], tat, now, limit) end
end

if interval == 0 or gcra_slot(tat, now, interval, burst, cost) > now then return -1 - math.max(0, tat - now) end
if cost > 0 and mode == 'take' then
  tat = gcra_take(tat, now, interval, cost)
  local until_ms = math.ceil((tat + keep) / 1000) + 1
  redis.call('SET', KEYS[1], digits(tat) .. ' ' .. digits(now) .. ' ' .. as, 'PXAT', digits(until_ms))
end
return math.max(0, tat - now)
