#!lua flags=allow-oom
-- Ends attempts that did not succeed. ARGV: verdict (X delete, V vacate, U refund, F fail, D bury), delay, memory (µs),
-- then for each key the guard (see renewals) and the error text. Reply as for completions.
local A, K, pcall, sub = ARGV, KEYS, redis.pcall, string.sub
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local verdict, delay, memory = A[1], A[2] + 0, A[3] + 0
local nobody = string.rep('\0', 16)
local out, n

local function put(k, v, fence, till, kept)
  local ms = math.max(math.ceil((till + kept - now) / 1000), math.ceil((fence - now) / 1000) + 1)
  return pcall('SET', k, v, 'PX', ms)
end

-- Writes a vacant record, without the owner and without the display text.
local function vacant(k, cur, text, first, fence, till, kept, over, attempt)
  local seen, count = string.byte(cur, 38) % 2, string.format('%010.0f', attempt)
  local v = '\129V' .. sub(cur, 3, 18) .. sub(count, 8) .. nobody .. string.char(seen) .. (seen == 1 and sub(cur, 39, 55) or '') .. text
    .. struct.pack('>I7I7I7I7I7', first, now, till, kept, over) .. sub(count, 1, 7)
  return put(k, v, fence, till, kept)
end

-- Once the clock has passed the number, the next grant has a higher one even without a record.
local function delete(k, cur, text, first, fence, attempt)
  if fence < now then
    local gone = pcall('DEL', k)
    return type(gone) == 'table' and gone or {}
  end
  return vacant(k, cur, text, first, fence, now, 0, 0, attempt)
end

local function step(k, cur, text)
  local first, updated, till, kept, over = struct.unpack('>I7I7I7I7I7', cur, #cur - 41)
  local fence, attempt = tonumber(sub(cur, 3, 18)), tonumber(sub(cur, -7) .. sub(cur, 19, 21))
  if not fence or fence >= 9007199254740992 or not attempt or till - updated > 2678400000000 or till + kept <= now then return end
  if verdict == 'X' then return delete(k, cur, text, first, fence, attempt) end
  if verdict == 'V' then return vacant(k, cur, text, first, fence, now + delay, memory, 0, attempt) end
  if verdict == 'U' then
    if attempt <= 1 and over == 0 and delay == 0 then return delete(k, cur, text, first, fence, attempt) end
    return vacant(k, cur, text, first, fence, now + delay, memory, over, math.max(attempt - 1, 0))
  end
  local flags = string.byte(cur, 38)
  local v = '\129' .. verdict .. sub(cur, 3, 21) .. nobody .. string.char(flags % 4) .. sub(cur, 39, -43) .. text
    .. struct.pack('>I7I7I7I7I7', first, now, now, memory, 0) .. sub(cur, -7)
  return put(k, v, fence, now, memory)
end

for i = 1, #K do
  local k, g, text = K[i], A[2 * i + 2], A[2 * i + 3]
  local cur = pcall('GET', k)
  local r
  if not cur then r = 'A'
  elseif cur.err then r = 'E' .. cur.err
  else
    r = 'R' .. cur
    if sub(cur, 1, 2) == '\129P' and #cur >= 80 and sub(cur, 22, 37) == sub(g, -17, -2) and (#g < 38 or sub(cur, 3, 18) == sub(g, 3, 18)) then
      local watched = string.byte(cur, 38) >= 4
      local done = step(k, cur, text)
      if done then
        r = done.err and 'E' .. done.err or nil
        if watched and not r then pcall('PUBLISH', '@settled', k) end
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
