-- reset: forget the release times; who calls has forgotten the start buckets. All that wait are looked at again.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), channel, scope
-- REPLY  number of release times forgotten
--
-- @include lib/clock
-- @include lib/scope
-- @include lib/entry
-- @include lib/lane
local forgotten = redis.call('ZCARD', RELEASES)
redis.call('DEL', RELEASES)
lane_reconsider(clock(ARGV[1]), ARGV[2], ARGV[3])
return forgotten
