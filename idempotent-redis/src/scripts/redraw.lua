-- Puts order tables of streams back that nobody has changed since. ARGV: how long they are kept (ms; 0: for ever), then for
-- each stream 'S' and what was seen, or 'N' for nothing, and what is put there. Answers: now (µs), then (index, answer) for
-- each that was not put back: 'N', or 'E' and an error.
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
