#!lua
-- A prototype that no store uses. Claims a key whose consumed form is a member of a set.
-- KEYS: record, header of the slot, then the set of each live segment, newest first.
-- ARGV: lease, memory (µs), time to live (ms), header as the client knows it, member, owner and flags.
-- Reply: now (µs), 'M' and the index of the set, 'R' and the record, or 'H' and the header.
local A, K, call, sub = ARGV, KEYS, redis.call, string.sub
local t = call('TIME')
local stamp = t[1] .. sub('00000' .. t[2], -6)
local now = stamp + 0
local h = call('GET', K[2])
if h ~= A[4] then return {'H', now, h or ''} end
for i = 3, #K do
  if call('SISMEMBER', K[i], A[5]) == 1 then
    local cur = call('GET', K[1])
    if cur then return {'R', now, cur} end
    return {'M', now, i}
  end
end
local v = '\129P' .. stamp .. '001' .. A[6] .. struct.pack('>I7I7I7I7I7', now, now, now + A[1], A[2] + 0, 0) .. '0000000'
local cur = call('SET', K[1], v, 'NX', 'GET', 'PX', A[3])
if cur then return {'R', now, cur} end
return now
