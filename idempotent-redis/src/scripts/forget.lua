#!lua flags=allow-oom
-- Makes a settled key claimable again, for an operator. ARGV: memory (µs), then for each key the expected fencing
-- number (16) and whether a consuming record may be forgotten (0, 1). Reply as for completions.
local A, K, pcall, sub = ARGV, KEYS, redis.pcall, string.sub
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local memory = A[1] + 0
local out, n = {now}, 1

-- Returns the number under which a key is settled and whether a waiter is registered; nil if it may not be forgotten.
local function settled(cur, force)
  local state = string.match(cur, '^\129([PFD])')
  if state and #cur >= 80 then
    local updated, till, kept = struct.unpack('>I7I7I7', cur, #cur - 34)
    local fence = tonumber(sub(cur, 3, 18))
    if not fence or fence >= 9007199254740992 or not tonumber(sub(cur, -7) .. sub(cur, 19, 21)) or till + kept <= now then return end
    if state == 'P' and (force ~= '1' or till - updated > 2678400000000) then return end
    return fence, string.byte(cur, 38) >= 4
  end
  if string.match(cur, '^%d+$') and #cur == 19 then
    return tonumber(sub(cur, 1, 16)), false
  end
  if string.match(cur, '^\129[\96-\111]') and #cur >= 11 then
    return struct.unpack('>I7', cur, 3), false
  end
end

for i = 1, #K do
  local k, expected, force = K[i], A[2 * i], A[2 * i + 1]
  local cur = pcall('GET', k)
  local r
  if type(cur) == 'string' then
    r = 'R' .. cur
    local fence, watched = settled(cur, force)
    if fence and fence == tonumber(expected) and fence < 9007199254740992 then
      local v = '\129V' .. string.format('%016.0f', fence) .. '000' .. string.rep('\0', 17) .. 'made claimable by an operator'
        .. struct.pack('>I7I7I7I7I7', now, now, now, memory, 0) .. '0000000'
      r = pcall('SET', k, v, 'PX', math.max(math.ceil(memory / 1000), math.ceil((fence - now) / 1000) + 1))
      r = r.err and 'E' .. r.err or nil
      if not r then
        pcall('PUBLISH', '@forgotten', k)
        if watched then pcall('PUBLISH', '@settled', k) end
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
