#!lua flags=allow-oom
-- A prototype that no store uses. Consuming becomes consumed: a member of a set, and a short record for a while.
-- KEYS: record, header of the slot, set of the open segment.
-- ARGV: time to live of the short record (ms), header, member, guard, end of the open segment (s), end of the set's life (s), members at
-- which the segment is closed.
-- Reply: now (µs) as text, 'F' for a set that is full, 'R' and a record that is not held, 'A' for none, or 'H' and the header.
local A, K, call, sub = ARGV, KEYS, redis.call, string.sub
local t = call('TIME')
local stamp = t[1] .. sub('00000' .. t[2], -6)
local h = call('GET', K[2])
if h ~= A[2] or t[1] + 0 >= A[5] + 0 then return {'H', stamp, h or ''} end
local cur = call('GET', K[1])
if not cur then return {'A', stamp} end
local g = A[4]
if sub(cur, 1, 38) ~= g or #cur < 80 then return {'R', stamp, cur} end
if call('SADD', K[3], A[3]) == 1 then
  local n = call('SCARD', K[3])
  if n == 1 then call('EXPIREAT', K[3], A[6]) end
  call('SET', K[1], sub(g, 3, 21), 'PX', A[1])
  if n >= A[7] + 0 then return {'F', stamp, n} end
else
  call('SET', K[1], sub(g, 3, 21), 'PX', A[1])
end
return stamp
