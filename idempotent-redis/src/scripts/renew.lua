#!lua flags=allow-oom
-- Renews leases. ARGV: lease (µs), then for each key the guard: the usual beginning of its record, i.e. version, state,
-- fencing number (16), first attempt (3), owner, no flags; without number and attempt if the number is unknown.
-- Version, state, number and owner must match. If the whole guard matches, the rest is not checked. Reply as for
-- completions.
local A, K, pcall, sub, pack, unpack, max, ceil = ARGV, KEYS, redis.pcall, string.sub, struct.pack, struct.unpack, math.max, math.ceil
local t = redis.call('TIME')
-- In the form of fencing numbers.
local stamp = t[1] .. sub('00000' .. t[2], -6)
local now = stamp + 0
local later = now + A[1]
local out, n
local last, text

-- Returns the number of a held record.
local function number(cur, g)
  if sub(cur, 1, 2) ~= '\129P' or sub(cur, 22, 37) ~= sub(g, -17, -2) or #g == 38 and sub(cur, 3, 18) ~= sub(g, 3, 18) then return end
  local fence = tonumber(sub(cur, 3, 18))
  if fence and fence < 9007199254740992 and tonumber(sub(cur, -7) .. sub(cur, 19, 21)) then return fence end
end

for i = 1, #K do
  local k, g = K[i], A[i + 1]
  local cur = pcall('GET', k)
  local r
  if not cur then r = 'A'
  elseif cur.err then r = 'E' .. cur.err
  else
    local left = true
    if #cur >= 80 then
      local updated, till, kept, _, thousands = unpack('>I7I7I7I7c7', cur, #cur - 34)
      if till - updated <= 2678400000000 and till + kept > now then
        local fence = 0
        if sub(cur, 1, 38) ~= g or thousands ~= '0000000' or sub(g, 3, 18) > stamp then fence = number(cur, g) end
        if fence then
          till = max(till, later)
          local v = sub(cur, 1, -36) .. pack('>I7I7', max(updated, now), till) .. sub(cur, -21)
          local ms = ceil((till + kept - now) / 1000)
          if fence > now then ms = max(ms, ceil((fence - now) / 1000) + 1) end
          -- Usually the same for all keys, and slow to print.
          if ms ~= last then last, text = ms, string.format('%.0f', ms) end
          left = false
          r = pcall('SET', k, v, 'PX', text)
          r = r.err and 'E' .. r.err
        end
      end
    end
    if left then r = 'R' .. cur end
  end
  if r then
    if not out then out, n = {now}, 1 end
    out[n + 1] = i
    out[n + 2] = r
    n = n + 2
  end
end
return out or now
