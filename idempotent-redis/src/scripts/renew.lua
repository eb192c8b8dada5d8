#!lua flags=allow-oom
-- Renews leases. ARGV: lease (µs), then for each key the guard (version, state, owner, and the fencing number (16) if it
-- is known). Answers as completions do.
local A, K, pcall, sub = ARGV, KEYS, redis.pcall, string.sub
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local later = now + A[1]
local out, n = {now}, 1
local last, text
for i = 1, #K do
  local k, g = K[i], A[i + 1]
  local cur = pcall('GET', k)
  local r
  if type(cur) == 'string' then
    r = 'R' .. cur
    if sub(cur, 1, 18) == sub(g, 1, 18) and #cur >= 80 and (#g == 18 or sub(cur, -26, -11) == sub(g, 19)) then
      local updated, till, kept = struct.unpack('>I7I7I7', cur, #cur - 53)
      local fence = tonumber(sub(cur, -26, -11))
      if fence and fence < 9007199254740992 and tonumber(sub(cur, -10)) and till - updated <= 2678400000000 and till + kept > now then
        till = math.max(till, later)
        local v = sub(cur, 1, -55) .. struct.pack('>I7I7I7', math.max(updated, now), till, kept) .. sub(cur, -33)
        local ms = math.ceil((till + kept - now) / 1000)
        if fence > now then ms = math.max(ms, math.ceil((fence - now) / 1000) + 1) end
        -- The same for all as a rule, and slow to print.
        if ms ~= last then last, text = ms, string.format('%.0f', ms) end
        r = pcall('SET', k, v, 'PX', text)
        r = r.err and 'E' .. r.err
      end
    end
  elseif cur then r = 'E' .. cur.err
  else r = 'A' end
  if r then
    out[n + 1] = i
    out[n + 2] = r
    n = n + 2
  end
end
return out
