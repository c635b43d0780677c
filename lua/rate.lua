-- rate: override one limit's rate and burst, or go back to the declared ones: at once, for all that wait too.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), which (1-based), interval (us; 0 = closed; '' = back to the declared), burst,
--        channel, scope
-- REPLY  1 if that changed anything, else 0 | error UNDECLARED
--
-- @include lib/clock
-- @include lib/bucket
-- @include lib/scope
-- @include lib/entry
-- @include lib/rescale
-- @include lib/lane
local now, field = clock(ARGV[1]), 'rate:' .. ARGV[2]
local before = limits_read()
if not before then return UNDECLARED end
if ARGV[3] == '' then
  redis.call('HDEL', LIMITS, field)
else
  redis.call('HSET', LIMITS, field, ARGV[3] .. ' ' .. ARGV[4])
end
redis.call('PEXPIRE', LIMITS, MONTH_MS)
if not pace_rescale(before, limits_read(), now) then return 0 end
lane_reconsider(now, ARGV[5], ARGV[6])
return 1
