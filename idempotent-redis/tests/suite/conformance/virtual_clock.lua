local server = redis
local redis = {}
local function clock() return tonumber(server.call('GET', 'test:clock')) end
local function ends(k)
  local at = server.call('GET', k .. ':ends')
  if at and tonumber(at) <= clock() then
    server.call('DEL', k, k .. ':ends')
    at = false
  end
  return at and tonumber(at)
end
local function set(how, k, v, options)
  local kept, px = {}, nil
  local i = 1
  while i <= #options do
    if options[i] == 'PX' then
      px = options[i + 1]
      i = i + 2
    else
      kept[#kept + 1] = options[i]
      i = i + 1
    end
  end
  local said = how('SET', k, v, unpack(kept))
  local stood = kept[1] == 'NX' and said
  if not stood and not (type(said) == 'table' and said.err) then
    if px then server.call('SET', k .. ':ends', string.format('%.0f', clock() + px * 1000))
    else server.call('DEL', k .. ':ends') end
  end
  return said
end
local function with(how)
  return function(name, k, ...)
    if name == 'TIME' then
      local now = clock()
      return {math.floor(now / 1000000), now % 1000000}
    end
    if name == 'PUBLISH' then return how(name, k, ...) end
    local at = ends(k)
    if name == 'PTTL' then return at and math.ceil((at - clock()) / 1000) or -1 end
    if name == 'PEXPIRETIME' then return at and at / 1000 or -1 end
    if name == 'SET' then return set(how, k, (...), {select(2, ...)}) end
    if name == 'DEL' then server.call('DEL', k .. ':ends') end
    return how(name, k, ...)
  end
end
redis.call, redis.pcall = with(server.call), with(server.pcall)
