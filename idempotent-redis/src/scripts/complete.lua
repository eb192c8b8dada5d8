#!lua flags=allow-oom
-- Consuming becomes consumed. ARGV: retention (ms, 0: forever), arguments per key (1, 2), then for each key the guard
-- (see renewals) and, if there are two, 'V' and the value. Reply: now (µs), or a list of now and (index, answer) for
-- each key that was not held: 'R' and the unchanged record, 'A' for none, 'E' and an error.
local A, K, pcall, sub, unpack = ARGV, KEYS, redis.pcall, string.sub, struct.unpack
local t = redis.call('TIME')
-- In the form of fencing numbers, and not below a short form whose number the clock has passed.
local stamp = t[1] .. sub('00000' .. t[2], -6)
local now, passed = stamp + 0, stamp .. '999'
local retain, two = A[1], A[2] == '2'
local out, n

-- Returns the consumed form of a held record, its retention (ms), and whether a waiter is registered.
local function consumed(cur, g, e)
  local known = #g == 38
  if sub(cur, 1, 2) ~= '\129P' or sub(cur, 22, 37) ~= sub(g, -17, -2) or known and sub(cur, 3, 18) ~= sub(g, 3, 18) then return end
  local number, attempt = tonumber(sub(cur, 3, 18)), tonumber(sub(cur, -7) .. sub(cur, 19, 21))
  if not number or number >= 9007199254740992 or not attempt then return end
  local flags, ms = string.byte(cur, 38), retain
  if number > now then ms = math.max(retain + 0, math.ceil((number - now) / 1000) + 1) end
  if known and e == '' and flags % 2 == 0 and attempt < 1000 then return sub(cur, 3, 21), ms, flags >= 4 end
  -- The long form, if the digits of the short one do not suffice.
  local form, parts = flags % 2, flags % 2 == 1 and sub(cur, 39, 55) or ''
  if not known then form, parts = form + 2, parts .. sub(cur, 22, 37) end
  if e ~= '' then form, parts = form + 4, parts .. sub(e, 2) end
  local counts
  if attempt > 65535 then form, counts = form + 8, struct.pack('>I7I4', number, attempt) else counts = struct.pack('>I7I2', number, attempt) end
  return '\129' .. string.char(96 + form) .. counts .. parts, ms, flags >= 4
end

for i = 1, #K do
  local k, g, e
  if two then k, g, e = K[i], A[2 * i + 1], A[2 * i + 2] else k, g, e = K[i], A[i + 2], '' end
  local cur = pcall('GET', k)
  local r
  if not cur then r = 'A'
  elseif cur.err then r = 'E' .. cur.err
  else
    local v, ms, watched = nil, retain, false
    if #cur >= 80 then
      local updated, till, kept, _, thousands = unpack('>I7I7I7I7c7', cur, #cur - 34)
      if till - updated <= 2678400000000 and till + kept > now then
        if sub(cur, 1, 38) == g and thousands == '0000000' and e == '' then v = sub(g, 3, 21) end
        if not v or v > passed then v, ms, watched = consumed(cur, g, e) end
      end
    end
    if not v then r = 'R' .. cur
    else
      -- Text is far faster than a number, which servers print with seventeen digits.
      if retain == '0' then r = pcall('SET', k, v) else r = pcall('SET', k, v, 'PX', ms) end
      if r.err then r = 'E' .. r.err
      else
        r = nil
        if watched then pcall('PUBLISH', '@settled', k) end
      end
    end
  end
  if r then
    if not out then out, n = {now}, 1 end
    out[n + 1] = i
    out[n + 2] = r
    n = n + 2
  end
end
return out or now
