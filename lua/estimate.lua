-- estimate: when would a task start that came now? Changes nothing.
--
-- KEYS   the eleven keys of the scope (README), then the start bucket of each limit (if one counts in windows)
-- ARGV   now ('' = ask Redis), lane, rank (one digit; 0 goes first), keys (comma-separated, one per limit),
--        costs (the same)
-- REPLY  {wait (us; -1 = not while a limit is closed), tasks that would go before it} | error UNDECLARED
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/scope
-- @include lib/pace
-- @include lib/ahead
local now = clock(ARGV[1])
local limits = limits_read(now)
if not limits then return UNDECLARED end
local found = pace_found(limits, split(ARGV[4]), split(ARGV[5]), now)
if limits.counted then
-- @include lib/log
-- @include lib/quota
  counted.log, counted.quota = log, quota
  for i, limit in ipairs(limits) do
    if limit.by and KEYS[11 + i] and limit.count > 0 then
      local slot = counted_slot(limit, KEYS[11 + i], found[i].cost, now)
      if slot > now then found[i].shut = slot end
    end
  end
end
local before, all = ahead_of(ARGV[2], ARGV[3])
local wait, closed = ahead_wait(found, limits, now, before, all)
local common = false
for _, limit in ipairs(limits) do common = common or limit.wide end
return {closed and -1 or math.ceil(wait), common and all or before}
