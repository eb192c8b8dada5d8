-- Swaps order tables of streams that have not changed since. ARGV: retention (ms; 0: forever), then for each stream 'S'
-- and the table as read, or 'N' for none, and the new table. Reply: now (µs), then (index, answer) for each table that
-- was not swapped: 'N', or 'E' and an error.
local A, K, pcall = ARGV, KEYS, redis.pcall
local t = redis.call('TIME')
local out = {t[1] * 1000000 + t[2]}
for i = 1, #K do
  local k, seen, r = K[i], A[2 * i], nil
  local cur = pcall('GET', k)
  if type(cur) == 'table' then r = 'E' .. cur.err
  elseif (cur and 'S' .. cur or 'N') ~= seen then r = 'N'
  else
    local done
    if A[1] == '0' then done = pcall('SET', k, A[2 * i + 1]) else done = pcall('SET', k, A[2 * i + 1], 'PX', A[1]) end
    if done.err then r = 'E' .. done.err end
  end
  if r then
    out[#out + 1] = i
    out[#out + 1] = r
  end
end
return out
