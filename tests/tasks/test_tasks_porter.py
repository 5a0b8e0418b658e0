"""The stemmer against NLTK's.

STEMS were computed by `PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS)` of NLTK 3.10.4 (`pip install nltk`): the
algorithm as published, with its author's two later changes (the endings "bli" and "logi") and with words of one or two
letters unchanged, as in Lucene. The words are Porter's own examples, common English words for every ending of every
step, and some short or irregular ones.
"""

from dph.tasks.sql.value_search import stems

STEMS = """
a:a access:access action:action activate:activ active:activ actually:actual added:ad additional:addit
adjustable:adjust adjustment:adjust adoption:adopt affiliates:affili agree:agre agreed:agre agreeing:agre
airliner:airlin alignment:align all:all allowance:allow alternative:altern ambiguous:ambigu analogousli:analog
analogy:analog analytical:analyt angulariti:angular annotations:annot another:anoth any:ani apologies:apolog
applicable:applic application:applic appropriate:appropri are:ar argument:argument array:arrai as:as assembled:assembl
assemblies:assembl assignment:assign associated:associ attachment:attach authenticate:authent authenticated:authent
authenticating:authent authentication:authent authenticator:authent authorizer:author automatically:automat
availability:avail available:avail awareness:awar based:base basic:basic being:be betweenness:between bled:bled
bleed:bleed bowdlerize:bowdler bowed:bow boxed:box bus:bu buses:buse business:busi by:by calculated:calcul
calculating:calcul call:call callable:callabl calling:call callousness:callous cancellable:cancel cancellation:cancel
cancellations:cancel cancelling:cancel canonical:canon canonicalization:canonic canonicalize:canonic
capabilities:capabl capitalization:capit capitalize:capit capitalized:capit careful:care caress:caress caresses:caress
cats:cat cease:ceas certificate:certif characters:charact class:class classes:class collections:collect
comment:comment communicate:commun communicating:commun communism:commun commutative:commut compatibility:compat
compatible:compat completely:complet completeness:complet compliance:complianc computational:comput condition:condit
conditional:condit conditioned:condit conditioning:condit configuration:configur conflated:conflat conformabli:conform
conservative:conserv considered:consid constant:constant contiguous:contigu continuous:continu controll:control
controller:control controlling:control convenience:conveni convergence:converg correctness:correct create:creat
created:creat creating:creat creation:creation creator:creator cried:cri cry:cry crying:cry cumulative:cumul
current:current currently:current customization:custom cyrillic:cyril date:date decisiveness:decis defensible:defens
defined:defin definiteness:definit definition:definit dependencies:depend dependent:depend deprecated:deprec
derivative:deriv description:descript deserialization:deseri deserialize:deseri deserializer:deseri
deserializing:deseri development:develop diagonalization:diagon difference:differ different:differ differentli:differ
digitizer:digit dimension:dimens directories:directori disabled:disabl disabling:disabl disagreement:disagr
displacement:displac distance:distanc document:document documentation:document duplicate:duplic during:dure dying:dy
educational:educ effective:effect effectiveness:effect electrical:electr electriciti:electr element:element else:els
enabled:enabl enabling:enabl endianness:endian enforcement:enforc enhancement:enhanc entries:entri environment:environ
equal:equal equality:equal equation:equat equivalent:equival evaluate:evalu evaluated:evalu evaluating:evalu
exceed:exce exception:except expensive:expens expression:express extension:extens eye:ey eyes:ey factorization:factor
failing:fail faithfulness:faith falling:fall feed:feed feudalism:feudal filing:file filling:fill finalize:final
finalizer:final finally:final finiteness:finit five:five fixing:fix fizzed:fizz fleeing:flee flexible:flexibl
flexibly:flexibl floating:float following:follow forceful:forc formaliti:formal formalize:formal formative:form
fraction:fraction fractional:fraction free:free freed:freed frequencies:frequenc frequency:frequenc function:function
functional:function functionalities:function functionality:function fuzzing:fuzz gas:ga generalization:gener
generalizations:gener generalize:gener generalized:gener generally:gener generate:gener generated:gener
generating:gener generator:gener generic:gener geology:geologi give:give goodness:good gravitational:gravit
guaranteed:guarante gyroscopic:gyroscop happy:happi has:ha have:have having:have helpful:help hence:henc hers:her
hesitanci:hesit hissing:hiss homogeneous:homogen homologou:homolog homologous:homolog homomorphism:homomorph
hopeful:hope hopefulness:hope hopping:hop identical:ident identities:ident identity:ident immediately:immedi
implement:implement implementation:implement important:import impossible:imposs improvement:improv
incompatibilities:incompat incompatible:incompat incredibly:incred indicate:indic indicating:indic inequalities:inequ
infeasibilities:infeas inference:infer infinities:infin information:inform informational:inform initialization:initi
initializations:initi initialize:initi initialized:initi initializer:initi initializers:initi initializing:initi
inning:in insensitive:insensit install:instal installable:instal installation:instal installations:instal
installed:instal installer:instal installing:instal instance:instanc integer:integ integers:integ intentional:intent
internal:intern internally:intern international:intern irrational:irrat irritant:irrit is:is isomorphism:isomorph
iterable:iter iteration:iter iterative:iter iterator:iter key:kei less:less limitations:limit live:live located:locat
location:locat locator:locat logic:logic logical:logic lying:ly management:manag mapping:map mathematical:mathemat
may:mai meant:meant measurement:measur mechanism:mechan minimization:minim minimize:minim minimizer:minim
minimizing:minim missing:miss mission:mission modification:modif modifications:modif monkey:monkei morphism:morphism
motoring:motor multiplication:multipl multiplicative:multipl multiplicities:multipl mutator:mutat my:my naive:naiv
name:name named:name native:nativ need:need negative:neg news:new nonnegative:nonneg normalization:normal
normalize:normal normalized:normal normalizing:normal notation:notat noticeable:notic number:number numeric:numer
numerical:numer numerically:numer obvious:obviou only:onli operating:oper operation:oper operations:oper operator:oper
operators:oper optimization:optim optimizations:optim optimize:optim optimized:optim optimizer:optim option:option
optional:option order:order organizational:organiz original:origin orthogonalize:orthogon oscillate:oscil
oscillating:oscil oscillation:oscil oscillator:oscil oscillators:oscil other:other overall:overal owed:ow
parameter:paramet parameters:paramet partitioned:partit partitioning:partit pass:pass passing:pass performance:perform
personalization:person physics:physic plastered:plaster played:plai ponies:poni position:posit positional:posit
positive:posit possible:possibl possibly:possibl precedence:preced precision:precis predicate:predic
predication:predic presence:presenc present:present presentational:present previous:previou prism:prism private:privat
probabilities:probabl probably:probabl probate:probat process:process processing:process properties:properti
proportional:proport public:public purposeful:purpos quantization:quantiz radicalli:radic raise:rais raises:rais
randomness:random rate:rate rating:rate rational:ration real:real realization:realiz realize:realiz realized:realiz
realizing:realiz receive:receiv recognized:recogn recursive:recurs reference:refer references:refer refinement:refin
related:relat relational:relat relative:rel relatively:rel relevant:relev replacement:replac replicate:replic
represent:repres representation:represent representative:repres representatives:repres represented:repres
representing:repres requirement:requir resize:resiz resized:resiz resizing:resiz respectively:respect
responsibilities:respons responsible:respons returned:return revival:reviv ring:ring ringed:ring roll:roll running:run
section:section seed:seed sees:see segment:segment sensibiliti:sensibl sensitiviti:sensit separate:separ
sequence:sequenc serialization:serial serialize:serial serializer:serial serializing:serial session:session
setting:set settings:set sibling:sibl significant:signific simplification:simplif simultaneous:simultan sing:sing
singing:sing size:size sized:size sizing:size skewness:skew sky:sky slated:slate snowing:snow sophisticated:sophist
special:special specific:specif specifically:specif specification:specif specifications:specif speed:speed spying:spy
state:state stated:state statement:statement stating:state station:station stored:store string:string
subclasses:subclass succeed:succe succeeding:succeed successful:success syzygy:syzygi table:tabl tanned:tan tax:tax
taxed:tax technology:technolog tension:tension terminology:terminolog the:the theoretical:theoret they:thei
thing:thing this:thi thou:thou ties:ti tokenize:token tokenizer:token tolerance:toler topology:topolog toy:toi
traditional:tradit translational:translat translator:translat trees:tree triplicate:triplic troubled:troubl try:try
typical:typic typically:typic typing:type undocumented:undocu uninitialized:uniniti uniqueness:uniqu unless:unless
update:updat updating:updat used:us useful:us usefulness:us uses:us using:us utilities:util valenci:valenc
validating:valid validation:valid values:valu variable:variabl various:variou verification:verif version:version
vertical:vertic vietnamization:vietnam vileli:vile visible:visibl want:want warnings:warn way:wai wedding:wed
will:will witnesses:wit wrapped:wrap you:you yoyo:yoyo
"""


def test_stems_as_nltk_finds_them():
    expected = {word: found for word, _, found in (pair.partition(":") for pair in STEMS.split())}
    assert len(expected) == 581
    found = stems(expected)
    assert {word: found.get(word, word) for word in expected} == expected
